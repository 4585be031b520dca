# SPDX-License-Identifier: Apache-2.0
"""Small changes of random networks, after which what looks like a pattern may not be one."""

import itertools

from random_kit import BOOL, FLOAT, INT, WIDE


def edges(net, *kinds):
    return [(node, i) for node in net.nodes for i, name in enumerate(node.input)
            if name and net.kinds[name] in (kinds or (FLOAT, WIDE))]


def insert(net, node, i, op, *inputs, **attributes):
    """A node more in front of input `i` of `node`."""
    given = node.input[i]
    node.input[i] = net(op, given, *inputs, kind=net.kinds[given], **attributes)
    net.nodes.insert(next(k for k, other in enumerate(net.nodes) if other is node), net.nodes.pop())


def is_a_result(net):
    made = [name for node in net.nodes for name in node.output if name and net.kinds[name] not in (INT, BOOL)]
    name = net.any(*made)
    if name not in net.outputs:
        net.outputs.append(name)


def is_read_elsewhere(net):
    node, i = net.any(*edges(net))
    if node.input[i] not in net.constants:
        net.outputs.append(net("Tanh", node.input[i]))


def is_read_for_nothing(net):
    node, i = net.any(*edges(net))
    net("Exp", node.input[i])


def is_asked_for_its_size(net):
    node, i = net.any(*edges(net))
    net.outputs.append(net("Shape", node.input[i]))


def stays(net):
    insert(net, *net.any(*edges(net)), net.any("Identity", "Dropout"))


def is_scaled(net):
    node, i = net.any(*edges(net))
    insert(net, node, i, "Mul", net.number(net.any(1.25, 0.75, -1), like=node.input[i]))


def is_made_twice(net):
    at = int(net.random.integers(len(net.nodes)))
    node = net.nodes[at]
    readers = [(other, i) for other in net.nodes for i, name in enumerate(other.input) if name == node.output[0]]
    if node.output[0] and readers and len(node.output) == 1:
        reader, i = net.any(*readers)
        twin = type(node)()
        twin.CopyFrom(node)
        twin.name = twin.output[0] = reader.input[i] = f"{node.output[0]}_twin"
        net.kinds[twin.name] = net.kinds[node.output[0]]
        net.nodes.insert(at + 1, twin)


def changes_sides(net):
    both = [node for node in net.nodes if node.op_type in ("Add", "Mul")]
    for node in both:
        if net.chance():
            node.input[0], node.input[1] = node.input[1], node.input[0]


def goes_along_another_axis(net):
    along = [a for node in net.nodes if node.op_type in ("Softmax", "ReduceMean", "ReduceSum", "ReduceMax")
             for a in node.attribute if a.name in ("axis", "axes")]
    along += [node for node in net.nodes if node.op_type.startswith("Reduce") and len(node.input) > 1]
    if along:
        picked, to = net.any(*along), net.any(-2, 1)
        if hasattr(picked, "op_type"):
            picked.input[1] = net.ints(to)
        elif picked.name == "axis":
            picked.i = to
        else:
            picked.ints[:] = [to]


def is_not_constant(net):
    node, i = net.any(*edges(net))
    name = node.input[i]
    if name in net.constants and net.kinds[name] == FLOAT:
        one = "one" if "one" in net.inputs else None
        one = net.cast(one, FLOAT) if one else net.input("one", FLOAT)
        net.nodes.insert(0, net.nodes.pop())
        insert(net, node, i, "Mul", one)


def is_another_number(net):
    powers = {node.input[1] for node in net.nodes if node.op_type == "Pow"}  # of what is below 0, too
    numbers = [name for name, value in net.constants.items()
               if value.size == 1 and net.kinds[name] in (FLOAT, WIDE) and name not in powers]
    if numbers:
        name = net.any(*numbers)
        net.constants[name] = net.constants[name] * net.any(0.9, 1.1, -1, 1.001)


def has_more_dims(net):
    name = net.any(*[name for name in net.constants if net.kinds[name] in (FLOAT, WIDE)])
    value = net.constants[name]
    net.constants[name] = value[None] if net.chance(0.7) or value.shape[:1] != (1,) else value[0]


def reads(node):
    """What it reads, and what its bodies do."""
    inner = (reads(other) for a in node.attribute if a.type == a.GRAPH for other in a.g.node)
    ends = (value.name for a in node.attribute if a.type == a.GRAPH for value in a.g.output)
    return [*node.input, *ends, *itertools.chain(*inner)]


def comes_at_another_time(net):
    """The nodes in any order in which each has its inputs."""
    left, known, order = list(net.nodes), {"", *net.inputs, *net.constants}, []
    made = {name for node in net.nodes for name in node.output}
    while left:
        ready = [node for node in left if known.issuperset(made & set(reads(node)))]
        node = net.any(*ready)
        left = [other for other in left if other is not node]
        known.update(node.output)
        order.append(node)
    net.nodes = order


CHANGES = (is_a_result, is_read_elsewhere, is_read_for_nothing, is_asked_for_its_size, stays, is_scaled, is_made_twice,
           changes_sides, goes_along_another_axis, is_not_constant, is_another_number, has_more_dims,
           comes_at_another_time)
