# SPDX-License-Identifier: Apache-2.0
"""Kinds of networks that the package timm has and torchvision has not, by timm's names, for nets.py."""

NETWORKS = (
    # convolutions
    "convmixer_768_32", "cspdarknet53", "cspresnext50", "darknet53", "dm_nfnet_f0", "dpn68b", "eca_nfnet_l0",
    "ese_vovnet39b", "fasternet_t1", "gcresnet50t", "ghostnet_100", "ghostnetv2_100", "hgnetv2_b2", "hrnet_w18",
    "inception_next_tiny", "inception_resnet_v2", "inception_v4", "lcnet_100", "mambaout_tiny", "mixnet_s",
    "mobilenetv4_conv_medium", "mobileone_s1", "rdnet_tiny", "regnetz_b16", "repghostnet_100", "repvit_m1_1",
    "res2net50_26w_4s", "resnest50d", "rexnet_100", "selecsls60", "seresnet50", "skresnet34", "starnet_s2",
    "tinynet_a", "tresnet_m", "xception41",
    # attention beside convolutions
    "bat_resnext26ts", "botnet26t_256", "caformer_s18", "coat_lite_small", "coatnet_0_rw_224", "convformer_s18",
    "convit_small", "crossvit_15_240", "davit_tiny", "edgenext_small", "efficientformer_l1",
    "efficientformerv2_s1", "efficientvit_b1", "efficientvit_m2", "fastvit_t12", "gcvit_tiny", "halonet26t",
    "lambda_resnet26t", "levit_conv_192", "maxxvit_rmlp_nano_rw_256", "mobilenetv4_hybrid_medium", "mobilevitv2_100",
    "mvitv2_tiny", "nest_tiny", "nextvit_small", "pit_s_224", "poolformerv2_s12", "shvit_s2", "swiftformer_s",
    "tiny_vit_11m_224", "twins_pcpvt_small", "twins_svt_small", "visformer_small", "volo_d1_224",
    # attention alone, and what takes its place
    "cait_s24_224", "deit3_small_patch16_224", "eva02_small_patch14_224", "gmlp_s16_224", "mixer_b16_224",
    "naflexvit_base_patch16_gap", "resmlp_24_224", "sequencer2d_s", "vit_relpos_small_patch16_224",
    "vit_small_patch16_224", "xcit_small_12_p16_224",
)
