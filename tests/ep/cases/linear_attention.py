# SPDX-License-Identifier: Apache-2.0
"""Linear attention of com.microsoft: its recurrence under each rule, its gates, packed batches, kept states."""

import numpy as np

from cases.attention import MS, NARROW
from cases.kit import F32, D, K, R, case

RULES = ("linear", "gated", "delta", "gated_delta")


# LinearAttention: heads shared either way, gates for heads and for elements, past states, one token and many.
def linear(batch, rows, heads, q_heads, size, value, rule, each=False, one_beta=False, past=True, types=F32, slack=8,
           **attrs):
    inputs = [R((batch, rows, q_heads * size), -1, 1), R((batch, rows, heads * size), -0.3, 0.3),
              R((batch, rows, heads * value), -1, 1)]
    windows = attrs.get("state_window", 0)
    state = (batch, heads, size, value)
    inputs.append(R((windows, *state) if windows else state, -1, 1) if past else None)
    inputs.append(R((batch, rows, heads * size if each else heads), -0.5, 0) if "gated" in rule else None)
    inputs.append(R((batch, rows, 1 if one_beta else heads), 0, 1) if "delta" in rule else None)
    while inputs[-1] is None:
        inputs.pop()
    case("LinearAttention", inputs, types, (1,), outputs=2, domain=MS, slack=slack, update_rule=rule,
         q_num_heads=q_heads, kv_num_heads=heads, **attrs)


for rule in RULES:
    linear(2, 5, 2, 2, 16, 8, rule, types=NARROW)
    linear(1, 1, 2, 4, 20, 33, rule, past=False, types=NARROW)
    linear(1, 40, 4, 2, 7, 5, rule)
    linear(1, 70, 1, 1, 128, 130, rule, slack=40)
linear(2, 37, 4, 2, 128, 24, "gated_delta", types=NARROW, slack=40)  # whole pieces
linear(1, 18, 2, 2, 64, 16, "delta", one_beta=True, past=False, types=NARROW, slack=20)
linear(2, 5, 2, 2, 16, 8, "gated", each=True, types=NARROW)
linear(1, 35, 2, 6, 9, 3, "gated_delta", each=True, one_beta=True, scale=0.5)
linear(1, 3, 2, 2, 8, 4, "delta", one_beta=True, chunk_size=16)
linear(1, 3, 1, 1, 300, 2, "gated_delta", slack=20)
linear(2, 0, 2, 2, 8, 4, "gated_delta")
linear(0, 3, 2, 2, 8, 4, "gated_delta")
# Its gates.
case("LinearAttentionGate", [R((2, 3, 5), -30, 30), D(np.linspace(-2, 2, 5), "float"),
                             D(-np.linspace(0.1, 3, 5), "float"), R((2, 3, 5))], NARROW, (1,), outputs=2, domain=MS)
case("LinearAttentionGate", [R((1, 7, 1)), D([0.5], "float"), D([-1.5], "float")], NARROW, (1,), domain=MS)
case("LinearAttentionGate", [R((0, 7, 2)), D([0.5, 1], "float"), D([-1.5, 1], "float"), R((0, 7, 2))], F32, (1,),
     outputs=2, domain=MS)


# GatedDeltaNet.
def gated_delta(q, k=None, v=None, starts=None, decay=None, beta=None, state=None, log_rate=None, bias=None,
                counts=None, active=None, update_rule="gated_delta", scale=0.0, qk_l2_norm=0, gate_activation="none",
                beta_activation="none", state_update_capacity=0):
    if k is None:
        heads, value, size = state.shape[1:]
        q_heads = (q.shape[-1] - heads * value) // (2 * size)
        lead, part = q.shape[:-1], q_heads * size
        q, k, v = (x.reshape(*lead, -1, n) for x, n in ((q[..., :part], size), (q[..., part : 2 * part], size),
                                                        (q[..., 2 * part :], value)))
    lead, (q_heads, size), (heads, value) = q.shape[:-2], q.shape[-2:], v.shape[-2:]
    q, k = (np.repeat(x.astype(np.float64).reshape(-1, q_heads, size), heads // q_heads, 1) for x in (q, k))
    v = v.astype(np.float64).reshape(-1, heads, value)
    if qk_l2_norm:
        q, k = (x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-12) for x in (q, k))
    if starts is None:
        batch = lead[0] if len(lead) == 2 else len(state)
        starts = np.arange(batch + 1) * (len(q) // max(batch, 1))
    batch, capacity = len(starts) - 1, state_update_capacity
    states = np.zeros((batch, heads, value, size)) if state is None else state.astype(np.float64)
    out = np.zeros((len(q), heads, value))
    updates = [np.zeros((batch, capacity, n)) for n in (heads, q_heads * size, heads * value)]
    for b in range(batch):
        for t in range(starts[b], starts[b + 1]):
            factor = np.ones((heads, 1))
            if "gated" in update_rule:
                g = decay.astype(np.float64).reshape(len(q), heads, -1)[t]
                if gate_activation == "qwen":
                    g = -np.exp(log_rate)[:, None] * np.log1p(np.exp(g + bias[:, None]))
                factor = np.exp(g)
            states[b] *= factor[:, None, :]
            delta = v[t]
            if "delta" in update_rule:
                rate = beta.astype(np.float64).reshape(len(q), heads)[t]
                rate = 1 / (1 + np.exp(-rate)) if beta_activation == "sigmoid" else rate
                delta = rate[:, None] * (delta - np.einsum("hvk,hk->hv", states[b], k[t]))
            states[b] += np.einsum("hv,hk->hvk", delta, k[t])
            out[t] = np.einsum("hvk,hk->hv", states[b], q[t]) * (scale or size**-0.5)
            at = t - starts[b]
            if counts is not None and at < min(counts[b], capacity) and (active is None or active[0]):
                updates[0][b, at], updates[2][b, at] = factor[:, 0], delta.ravel()
                updates[1][b, at] = k[t, :: heads // q_heads].ravel()
    update = np.concatenate([x.reshape(batch, -1) for x in updates], 1)
    return [out.reshape(*lead, heads, value), states, update][: 3 if capacity else 2]


def floats(shape, low, high):
    return D(np.random.default_rng(sum(shape)).uniform(low, high, shape).tolist(), "float")


def delta_net(lead, q_heads, heads, size, value, batch=None, starts=None, packed=False, state=True, each=False,
              types=F32, counts=None, active=None, slack=8, **attrs):
    rule = attrs.get("update_rule", "gated_delta")
    batch = batch or (len(starts) - 1 if starts else lead[0])
    inputs = [R((*lead, q_heads, size), -0.4, 0.4)] * 2 + [R((*lead, heads, value), -1, 1)]
    if packed:
        inputs = [R((*lead, 2 * q_heads * size + heads * value), -0.4, 0.4), None, None]
    inputs.append(D(starts, "int32") if starts else None)
    inputs.append(floats((*lead, heads, size) if each else (*lead, heads), -0.5, 0) if "gated" in rule else None)
    inputs.append(floats((*lead, heads), 0, 1) if "delta" in rule else None)
    inputs.append(floats((batch, heads, value, size), -1, 1) if state else None)
    qwen = attrs.get("gate_activation") == "qwen"
    inputs += [floats((heads,), -1, 1), floats((heads,), -2, 2)] if qwen else [None, None]
    inputs.append(D(counts, "int32") if counts else None)
    inputs.append(K(active, "int32") if active else None)
    while inputs[-1] is None:
        inputs.pop()
    case("GatedDeltaNet", inputs, types, (1,), outputs=3 if counts else 2, domain=MS, slack=slack,
         reference=gated_delta, **attrs)


for rule in RULES:
    delta_net((6,), 2, 4, 16, 8, batch=2, update_rule=rule, types=NARROW)
    delta_net((2, 3), 1, 3, 20, 9, update_rule=rule, state=False)
    delta_net((1, 45), 1, 1, 33, 40, update_rule=rule, qk_l2_norm=1)
delta_net((9,), 2, 2, 8, 4, starts=[0, 4, 4, 9], types=NARROW)
delta_net((9,), 2, 2, 8, 4, starts=[0, 1, 9], state=False)
delta_net((40,), 1, 2, 128, 130, starts=[0, 3, 40], types=NARROW, qk_l2_norm=1, gate_activation="qwen",
          beta_activation="sigmoid", slack=20)
delta_net((37,), 2, 4, 128, 64, starts=[0, 20, 20, 37], packed=True, types=NARROW, qk_l2_norm=1, slack=40)
delta_net((6,), 2, 4, 16, 8, batch=2, packed=True, types=NARROW, scale=0.7)
delta_net((2, 3), 1, 1, 16, 8, packed=True, update_rule="gated")
delta_net((6,), 2, 4, 16, 8, batch=3, each=True, qk_l2_norm=1, types=NARROW)
delta_net((2, 3), 1, 2, 16, 8, each=True, gate_activation="qwen")
for active in (None, [0], [1]):
    delta_net((9,), 2, 4, 8, 5, starts=[0, 4, 6, 9], counts=[3, 8, -1], active=active, state_update_capacity=3,
              qk_l2_norm=1)
delta_net((4,), 1, 2, 24, 20, batch=2, counts=[1, 2], state_update_capacity=8, update_rule="linear")


# States after each of the last tokens, which the CPU provider does not keep: those of the prefixes.
def windowed(q, k, v, past=None, decay=None, beta=None, q_num_heads=1, kv_num_heads=1, state_window=1,
             update_rule="gated_delta"):
    batch, rows = q.shape[:2]
    size, value = q.shape[2] // q_num_heads, v.shape[2] // kv_num_heads
    q, k, v = (x.reshape(batch, rows, -1, n) for x, n in ((q, size), (k, size), (v, value)))
    state = np.zeros((batch, kv_num_heads, value, size)) if past is None else past[-1].swapaxes(2, 3)
    states = np.zeros((state_window, batch, kv_num_heads, size, value))
    outs = []
    group = q_num_heads // kv_num_heads
    for w in range(state_window):
        end = rows - state_window + w + 1
        if end > 0:
            cut = [None if x is None else x[:, :end] for x in (k, v, decay, beta)]
            outs = [gated_delta(q[:, :end, g::group], *cut[:2], None, *cut[2:], state, update_rule=update_rule)
                    for g in range(group)]
            states[w] = outs[0][1].swapaxes(2, 3)
    return [np.stack([out[0] for out in outs], 3).reshape(batch, rows, -1), states]


for windows, rows in ((1, 4), (3, 5), (3, 3), (4, 2), (8, 1)):
    linear(2, rows, 2, 2, 8, 4, "gated_delta", state_window=windows, reference=windowed)
    linear(1, rows, 1, 2, 8, 4, "linear", state_window=windows, past=False, reference=windowed)

