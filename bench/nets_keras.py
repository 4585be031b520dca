# SPDX-License-Identifier: Apache-2.0
"""Networks of Keras for nets.py, as tf2onnx writes them: images with channels last, padding apart, attention by Einsum,
recurrent layers as loops. They are made where TensorFlow, Keras and tf2onnx are; skeletons.py brings them elsewhere.
"""

from functools import partial

import numpy as np

APPLICATIONS = {"mobilenet_v2": ("MobileNetV2", 224), "mobilenet_v3": ("MobileNetV3Large", 224),
                "efficientnet_b0": ("EfficientNetB0", 224), "resnet50": ("ResNet50", 224),
                "densenet121": ("DenseNet121", 224), "inception_v3": ("InceptionV3", 299),
                "xception": ("Xception", 299), "nasnet": ("NASNetMobile", 224)}


def application(kind, side):
    import keras

    return getattr(keras.applications, kind)(weights=None, input_shape=(side, side, 3), classifier_activation=None)


def chained(shape, *layers):
    import keras

    x = given = keras.Input(shape)
    for layer in layers:
        x = layer(x)
    return keras.Model(given, x)


def lstm():
    from keras import layers

    return chained((100, 128), layers.Bidirectional(layers.LSTM(256, return_sequences=True)), layers.LSTM(256),
                   layers.Dense(20))


def gru():
    from keras import layers

    return chained((100, 128), layers.GRU(256, return_sequences=True), layers.GRU(256), layers.Dense(20))


def tcn():
    """Lines of sound: causal convolutions, further and further apart."""
    import keras
    from keras import layers

    given = keras.Input((256, 64))
    x = layers.Conv1D(128, 1)(given)
    for apart in (1, 2, 4, 8, 16):
        y = layers.Conv1D(128, 3, padding="causal", dilation_rate=apart)(x)
        y = layers.ReLU()(layers.BatchNormalization()(y))
        y = layers.Conv1D(128, 3, padding="causal", dilation_rate=apart)(y)
        x = layers.Add()([x, layers.ReLU()(layers.BatchNormalization()(y))])
    return keras.Model(given, layers.Dense(20)(x))


def unet():
    import keras
    from keras import layers

    def twice(x, channels):
        for _ in range(2):
            x = layers.Conv2D(channels, 3, padding="same", use_bias=False)(x)
            x = layers.ReLU()(layers.BatchNormalization()(x))
        return x

    x = given = keras.Input((256, 256, 3))
    kept = []
    for channels in (32, 64, 128):
        kept.append(twice(x, channels))
        x = layers.MaxPooling2D()(kept[-1])
    x = layers.Conv2DTranspose(128, 2, strides=2, padding="same")(twice(x, 256))
    x = layers.UpSampling2D(interpolation="bilinear")(twice(layers.Concatenate()([x, kept[2]]), 128))
    x = layers.UpSampling2D()(twice(layers.Concatenate()([x, kept[1]]), 64))
    return keras.Model(given, layers.Conv2D(4, 1, activation="softmax")(twice(layers.Concatenate()([x, kept[0]]), 32)))


def transformer(causal=False):
    import keras
    from keras import layers

    given = keras.Input((128,), dtype="int32")
    x = layers.Embedding(10000, 512)(given)
    for _ in range(6):
        y = layers.MultiHeadAttention(8, 64)(x, x, use_causal_mask=causal)
        x = layers.LayerNormalization(epsilon=1e-6)(layers.Add()([x, y]))
        y = layers.Dense(512)(layers.Dense(2048, activation="relu")(x))
        x = layers.LayerNormalization(epsilon=1e-6)(layers.Add()([x, y]))
    return keras.Model(given, layers.Dense(20)(x if causal else layers.GlobalAveragePooling1D()(x)))


NETWORKS = {**{name: partial(application, *row) for name, row in APPLICATIONS.items()},
            "lstm": lstm, "gru": gru, "tcn": tcn, "unet": unet, "transformer": transformer,
            "decoder": partial(transformer, causal=True)}


def feed_of(spec, random, batch=1):
    shape = (batch, *spec.shape[1:])
    return random.integers(0, 10000, shape).astype(np.int32) if spec.dtype == "int32" else (
        random.uniform(-1, 1, shape).astype(np.float32))


def set_weights(model, random):
    """Statistics as they are of some input, and biases that are no zeros."""
    norms = [layer for layer in model._flatten_layers() if type(layer).__name__ == "BatchNormalization"]
    for norm in norms:
        norm.momentum = 0.0
    model(feed_of(model.inputs[0], random, 4), training=bool(norms))
    for weights in model.trainable_weights:
        if weights.path.endswith(("bias", "beta")):
            weights.assign(random.normal(0, 0.1, weights.shape))
        elif weights.path.endswith("gamma"):
            weights.assign(random.uniform(0.7, 1.3, weights.shape))


def write(name, target, kind):
    """Writes the network of this name; gives its feed."""
    import keras
    import onnx
    import tensorflow
    import tf2onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    keras.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    model = NETWORKS[name]()
    set_weights(model, random)
    spec = model.inputs[0]
    given = [tensorflow.TensorSpec((1, *spec.shape[1:]), spec.dtype, "x0")]
    net = tensorflow.function(lambda x: model(x, training=False))
    made, _ = tf2onnx.convert.from_function(net, given, opset=17)
    for value in [value for value in made.graph.input if value.name != "x0"]:  # constants that it takes for inputs
        dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        made.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(dims, np.float32), value.name))
        made.graph.input.remove(value)
    feed = {"x0": feed_of(spec, random)}
    if kind == "f16":
        made = convert_float_to_float16(made)
        feed = {key: x.astype(np.float16) if x.dtype == np.float32 else x for key, x in feed.items()}
    onnx.save(made, str(target))
    return feed
