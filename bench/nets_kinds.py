# SPDX-License-Identifier: Apache-2.0
"""Further kinds of networks for nets.py, as data: those whose first output comes from named inputs.

A row of TRANSFORMERS: name, class, inputs, settings that are not the class's own. Inputs: "text" is identifiers and a
mask, "texts" such a pair for an encoder and identifiers for its decoder; anything else is the name of an input and the
shape of its random numbers.
"""

IMAGE = ("pixel_values", 1, 3, 224, 224)
SECOND_OF_SOUND = ("input_values", 1, 16000)
SMALL = {"hidden_size": 768, "num_hidden_layers": 8, "num_attention_heads": 12, "intermediate_size": 2048,
         "vocab_size": 30000}

CLASSIFIERS = ("swin_v2_t", "efficientnet_v2_s", "resnext50_32x4d", "wide_resnet50_2", "alexnet", "mobilenet_v2",
               "regnet_x_1_6gf", "resnet18", "vgg11_bn")
SEGMENTERS = ("fcn_resnet50", "lraspp_mobilenet_v3_large")
VIDEOS = ("r2plus1d_18", "swin3d_t")
DETECTORS = {"ssdlite320_mobilenet_v3_large": (3, 320, 320), "ssd300_vgg16": (3, 300, 300),
             "fasterrcnn_resnet50_fpn": (3, 480, 640), "fasterrcnn_mobilenet_v3_large_320_fpn": (3, 320, 320),
             "retinanet_resnet50_fpn": (3, 480, 640), "fcos_resnet50_fpn": (3, 480, 640),
             "maskrcnn_resnet50_fpn": (3, 480, 640), "keypointrcnn_resnet50_fpn": (3, 480, 640)}

TRANSFORMERS = (
    # encoders of texts
    ("roberta", "RobertaModel", "text", {}),
    ("electra", "ElectraModel", "text", {}),
    ("mobilebert", "MobileBertModel", "text", {}),
    ("squeezebert", "SqueezeBertModel", "text", {}),
    ("convbert", "ConvBertModel", "text", {}),
    ("xlnet", "XLNetModel", "text", {"n_layer": 12, "d_model": 768, "n_head": 12, "d_inner": 3072,
                                    "vocab_size": 30000}),
    ("mpnet", "MPNetModel", "text", {}),
    ("roformer", "RoFormerModel", "text", {}),
    ("modernbert", "ModernBertModel", "text", {"num_hidden_layers": 12, "reference_compile": False}),
    ("nystromformer", "NystromformerModel", "text", {}),
    ("esm", "EsmModel", "text", {**SMALL, "pad_token_id": 1, "mask_token_id": 2}),
    # encoders with a decoder
    ("bart", "BartModel", "texts", {"encoder_layers": 6, "decoder_layers": 6, "d_model": 768,
                                    "encoder_attention_heads": 12, "decoder_attention_heads": 12}),
    ("marian", "MarianModel", "texts", {"encoder_layers": 6, "decoder_layers": 6, "d_model": 512, "vocab_size": 30000,
                                        "encoder_attention_heads": 8, "decoder_attention_heads": 8,
                                        "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048, "pad_token_id": 1,
                                        "decoder_start_token_id": 1}),
    # decoders of texts, without a cache
    ("opt", "OPTModel", "text", {"num_hidden_layers": 8, "vocab_size": 30000}),
    ("gptj", "GPTJModel", "text", {"n_embd": 1024, "n_layer": 6, "n_head": 16, "rotary_dim": 64, "vocab_size": 30000}),
    ("mistral", "MistralModel", "text", {**SMALL, "num_key_value_heads": 4}),
    ("qwen2", "Qwen2Model", "text", {**SMALL, "num_key_value_heads": 4}),
    ("stablelm", "StableLmModel", "text", {**SMALL, "num_key_value_heads": 12}),
    ("gemma3", "Gemma3TextModel", "text", {**SMALL, "num_key_value_heads": 4, "head_dim": 64}),
    ("mamba", "MambaModel", "text", {"num_hidden_layers": 4, "hidden_size": 512, "vocab_size": 30000}),
    # speech
    ("hubert", "HubertModel", (SECOND_OF_SOUND,), {}),
    ("wavlm", "WavLMModel", (SECOND_OF_SOUND,), {}),
    ("conformer", "Wav2Vec2ConformerModel", (SECOND_OF_SOUND,), {"num_hidden_layers": 6}),
    ("sew", "SEWModel", (SECOND_OF_SOUND,), {}),
    ("spectrogram", "ASTModel", (("input_values", 1, 1024, 128),), {}),
    # images
    ("deit", "DeiTModel", (IMAGE,), {}),
    ("beit", "BeitModel", (IMAGE,), {"use_relative_position_bias": True}),
    ("cvt", "CvtModel", (IMAGE,), {}),
    ("poolformer", "PoolFormerModel", (IMAGE,), {}),
    ("focalnet", "FocalNetModel", (IMAGE,), {}),
    ("hiera", "HieraModel", (IMAGE,), {}),
    ("convnextv2", "ConvNextV2Model", (IMAGE,), {}),
    ("pvt", "PvtV2Model", (IMAGE,), {}),
    ("bit", "BitModel", (IMAGE,), {}),
    ("siglip", "SiglipVisionModel", (IMAGE,), {}),
    ("yolos", "YolosModel", (("pixel_values", 1, 3, 512, 864),), {}),
    ("sam", "SamVisionModel", (("pixel_values", 1, 3, 1024, 1024),), {"num_hidden_layers": 4,
                                                                       "global_attn_indexes": [3]}),
    ("depth", "DPTForDepthEstimation", (("pixel_values", 1, 3, 384, 384),), {}),
    ("glpn", "GLPNModel", (("pixel_values", 1, 3, 480, 640),), {}),
    ("rtdetr", "RTDetrModel", (("pixel_values", 1, 3, 640, 640),), {}),
    ("videomae", "VideoMAEModel", (("pixel_values", 1, 16, 3, 224, 224),), {"num_hidden_layers": 4}),
    ("timesformer", "TimesformerModel", (("pixel_values", 1, 8, 3, 224, 224),), {"num_hidden_layers": 4}),
)
