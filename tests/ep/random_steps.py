# SPDX-License-Identifier: Apache-2.0
"""Random networks that go step by step: recurrent operators, and If, Loop and Scan with bodies in bodies."""

import numpy as np
import random_changes
from onnx import helper
from random_kit import BOOL, FLOAT, INT, WIDE, Net

WIDTH = 8
SIZES = [(5, 2, 3, True), (5, 2, 0, False), (1, 1, 0, False), (4, 3, 1, True), (4, 3, 6, True), (5, 2, 3, False)]
CHANGES = [change for change in random_changes.CHANGES if change not in
           (random_changes.goes_along_another_axis, random_changes.has_more_dims, random_changes.is_another_number)]
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
ACTIVATIONS = {"LSTM": (("Sigmoid", "Tanh", "Tanh"), ("HardSigmoid", "Tanh", "Relu"), ("Sigmoid", "Softsign", "Tanh")),
               "GRU": (("Sigmoid", "Tanh"), ("Sigmoid", "Softsign"), ("HardSigmoid", "Tanh")),
               "RNN": (("Tanh",), ("Sigmoid",), ("Softsign",))}


class Steps(Net):
    """Values are states [n, WIDTH] or lines of them, [steps, n, WIDTH], by what their steps are counted by."""

    def __init__(self, seed):
        super().__init__(seed, opset=0)
        self.opset, self.dims = self.any(17, 18, 21), {}  # of values of bodies that are no states
        x, self.raw = self.input("line", FLOAT, "steps", "n", WIDTH), "line"
        self.states, self.lines = [self.input("state", FLOAT, "n", WIDTH)], [(x, "steps")]
        self.rounds, self.flag = self.input("rounds", INT), self.input("flag", BOOL)
        layers = [self.recurrent, self.recurrent, self.scan, self.loop, self.branch, self.state, self.along]
        for _ in range(self.any(3, 4, 6)):
            self.any(*layers)(0)
        self.outputs += [self.states[-1], self.lines[-1][0]]
        self.outputs = list(dict.fromkeys(self.outputs))
        for _ in range(self.any(0, 0, 1, 2, 3)):
            self.any(*CHANGES)(self)

    def pick(self, values):
        return self.any(*values[-5:])

    # ---- element by element ----

    def bounded(self, x):
        return self(self.any("Tanh", "Tanh", "Sigmoid", "Softsign", "Erf"), x)

    def state(self, _):
        """A state more, of one or two."""
        x = self.pick(self.states)
        way = self.any("two", "two", "product", "number", "row", "mean")
        if way == "two":
            made = self(self.any("Add", "Mul", "Sub", "Max"), x, self.pick(self.states))
        elif way == "product":
            made = self("MatMul", x, self.weight(WIDTH, WIDTH))
        elif way == "number":
            made = self("Mul", x, self.number(self.any(0.5, -1, 2)))
        elif way == "row":
            made = self("Add", x, self.weight(WIDTH, scale=1))
        else:
            made = self("Sub", x, self.axes("ReduceMean", x, 1, keepdims=1))
        self.states.append(self.bounded(made) if self.chance(0.7) else made)
        return self.states[-1]

    def along(self, _):
        """A line more, or a state of one."""
        (x, count), way = self.pick(self.lines), self.any("two", "state", "product", "last", "mean", "turned")
        if way == "last":
            self.states.append(self.axes("Squeeze", self.slice(x, 0, -1, 2**62), 0))
        elif way == "mean":
            self.states.append(self.axes("ReduceMean", x, 0, keepdims=0))
        else:
            others = [other for other, by in self.lines if by == count]
            made = {"two": lambda: self("Add", x, self.any(*others)),
                    "state": lambda: self("Mul", x, self.pick(self.states)),
                    "product": lambda: self("MatMul", x, self.weight(WIDTH, WIDTH)),
                    "turned": lambda: self("Transpose", self("Transpose", x, perm=[1, 0, 2]), perm=[1, 0, 2])}[way]()
            self.lines.append((self.bounded(made) if self.chance() else made, count))

    # ---- recurrent operators ----

    def recurrent(self, _):
        op, way = self.any(*GATES), self.any("forward", "reverse", "bidirectional")
        x, count = self.pick(self.lines)
        ways = 2 if way == "bidirectional" else 1
        gates = GATES[op]
        given = [x, self.shaped(ways, gates * WIDTH, WIDTH), self.shaped(ways, gates * WIDTH, WIDTH),
                 self.shaped(ways, 2 * gates * WIDTH) if self.chance(0.7) else "",
                 self.lengths() if count == "steps" and self.chance(0.4) else ""]
        given += [self.begin(ways) if self.chance() else "" for _ in range(2 if op == "LSTM" else 1)]
        if op == "LSTM":
            given.append(self.shaped(ways, 3 * WIDTH) if self.chance(0.4) else "")
        while given[-1] == "":
            given.pop()
        attributes = {"hidden_size": WIDTH, "direction": way}
        if self.chance(0.4):
            attributes["activations"] = [*self.any(*ACTIVATIONS[op])] + [*self.any(*ACTIVATIONS[op])] * (ways - 1)
        if self.chance(0.2):
            attributes["clip"] = 0.75
        if op == "GRU":
            attributes["linear_before_reset"] = self.any(0, 1)
        if op == "LSTM" and self.chance(0.2):
            attributes["input_forget"] = 1
        made = self(op, *given, outputs=3 if op == "LSTM" else 2, **attributes)
        kept = self.any(1, 2, 3)  # bits: which results are read
        if kept & 1:
            rows = self("Transpose", made[0], perm=[0, 2, 1, 3]) if ways == 2 else self.axes("Squeeze", made[0], 1)
            if ways == 2:
                flat = self("Reshape", rows, self.ints(0, 0, 2 * WIDTH))
                rows = self("MatMul", flat, self.weight(2 * WIDTH, WIDTH))
            self.lines.append((rows, count))
        for last in made[1:] if kept & 2 else []:
            self.states.append(self.axes("ReduceSum", last, 0, keepdims=0) if self.chance() or ways == 2
                               else self.axes("Squeeze", last, 0))

    def shaped(self, *dims):
        return self.weight(*dims, scale=0.4)

    def lengths(self):
        if "lengths" not in self.inputs:
            self.inputs["lengths"], self.kinds["lengths"] = ("n",), "int32"
        return "lengths"

    def begin(self, ways):
        wide = self.axes("Unsqueeze", self.pick(self.states), 0)
        return wide if ways == 1 else self("Concat", wide, wide, axis=0)

    # ---- bodies ----

    def body(self, inputs, depth, write):
        """The graph of what `write` makes, which gives its outputs, within all that there is outside."""
        kept = self.nodes, list(self.states), list(self.lines)
        self.nodes = []
        outputs = write()
        for _ in range(self.any(0, 0, 1)):
            self.state(depth)  # nobody reads it
        values = [[helper.make_tensor_value_info(name, 0, self.dims.get(name, (None, WIDTH))) for name in names]
                  for names in (inputs, outputs)]
        graph = helper.make_graph(self.nodes, f"body{self.count}", *values)
        self.nodes, self.states, self.lines = kept
        return graph

    def fresh(self, kind, *dims):
        self.count += 1
        name = f"b{self.count}"
        self.kinds[name], self.dims[name] = kind, dims
        return name

    def work(self, depth, *given):
        """Some nodes behind what is given, of which the last result is new."""
        self.states += given
        for _ in range(self.any(1, 2, 4)):
            bodies = [self.branch, self.loop, self.scan, self.recurrent, self.along] if depth < 2 else []
            self.any(*[self.state] * 5, *bodies)(depth + 1)
        return self.bounded(self("Add", self.pick(self.states), self.any(*given)) if given else self.pick(self.states))

    def condition(self, count=None):
        """True or false, by what float16 and float32 agree upon."""
        way = self.any("flag", "rounds", "sum", *(["parity"] * 2 if count else []))
        if way == "flag":
            return self("Identity", self.flag) if self.chance() else self("Not", self.flag)
        if way == "sum":
            return self("Greater", self("ReduceSum", self.raw, keepdims=0), self.constant(0.0, WIDE))
        if way == "rounds":
            return self("Less", self.rounds, self.constant(np.int64(2)))
        return self("Equal", self("Mod", count, self.constant(np.int64(2))), self.constant(np.int64(0)))

    def branch(self, depth, count=None):
        condition, outputs = self.condition(count), self.any(1, 1, 2)
        def side():
            if self.chance(0.2):  # hands on what there is outside
                return self.body([], depth, lambda: [self("Identity", self.pick(self.states)) for _ in range(outputs)])
            return self.body([], depth, lambda: [self.work(depth) for _ in range(outputs)])
        made = self("If", condition, outputs=outputs, kind=FLOAT, then_branch=side(), else_branch=side())
        self.states += [made] if outputs == 1 else made

    def scan(self, depth):
        x, count = self.pick(self.lines)
        others = [other for other, by in self.lines if by == count]
        lines = [x] + ([self.any(*others)] if self.chance() else [])
        carried = [self.pick(self.states) for _ in range(self.any(1, 1, 2))]
        inner, rows = [self.fresh(FLOAT, None, WIDTH) for _ in carried], [self.fresh(FLOAT, None, WIDTH) for _ in lines]
        results = self.any(0, 1, 2)
        graph = self.body([*inner, *rows], depth, lambda: [self.work(depth, *inner, *rows) for _ in inner] +
                          [self.work(depth, *inner, *rows) for _ in range(results)])
        more = {"scan_input_directions": [self.any(0, 1) for _ in lines]} if self.chance() else {}
        if results and self.chance(0.3):
            more["scan_output_directions"] = [self.any(0, 1) for _ in range(results)]
        made = self("Scan", *carried, *lines, outputs=len(carried) + results, kind=FLOAT, body=graph,
                    num_scan_inputs=len(lines), **more)
        made = [made] if isinstance(made, str) else made
        self.states += made[:len(carried)]
        self.lines += [(name, count) for name in made[len(carried):]]

    def loop(self, depth):
        most = self.any(self.rounds, self.rounds, self.constant(np.int64(self.any(0, 1, 3))), "",
                        self("Gather", self("Shape", self.raw), self.constant(np.int64(0)), axis=0))
        carried = [self.pick(self.states) for _ in range(self.any(1, 1, 2))]
        grows, results = self.chance(0.3), self.any(0, 0, 1)
        count, go, inner = self.fresh(INT), self.fresh(BOOL), [self.fresh(FLOAT, None, WIDTH) for _ in carried]
        grown = [self.fresh(FLOAT, None, None, WIDTH)] if grows else []

        def write():
            if self.chance(0.4):  # a row of a line for each round
                x, _ = self.pick(self.lines)
                steps = self("Gather", self("Shape", x), self.constant(np.int64(0)), axis=0)
                at = self("Mod", count, self("Max", steps, self.constant(np.int64(1))))
                self.states.append(self("Gather", x, at, axis=0))
            if depth < 2 and self.chance(0.3):
                self.branch(depth + 1, count)
            made = [self.work(depth, *inner) for _ in inner]
            further = self("Concat", *grown, self.axes("Unsqueeze", made[0], 0), axis=0) if grows else None
            limit = self.constant(np.int64(self.any(2, 4)))
            on = self("Less", count, limit) if most == "" or self.chance(0.3) else self("Identity", go)
            self.dims |= {on: (), further: (None, None, WIDTH)}
            return [on, *made, *([further] if grows else []), *(self.work(depth, *inner) for _ in range(results))]

        begin = [self.axes("Unsqueeze", carried[0], 0)] if grows else []
        graph = self.body([count, go, *inner, *grown], depth, write)
        goes = "" if most and self.chance() else self.constant(np.bool_(True))
        made = self("Loop", most, goes, *carried, *begin, outputs=len(carried) + grows + results, kind=FLOAT,
                    body=graph)
        made = [made] if isinstance(made, str) else made
        self.states += made[:len(carried)]
        if grows:
            self.lines.append((made[len(carried)], made[0]))
        if depth == 0:
            self.outputs += made[len(carried) + grows:]

    def feeds(self):
        made = []
        for i, (steps, n, rounds, flag) in enumerate(SIZES):
            random = np.random.default_rng(i)
            feed = {"line": random.standard_normal((steps, n, WIDTH)), "state": random.standard_normal((n, WIDTH))}
            feed = {name: value.astype(np.float16).astype(np.float32) for name, value in feed.items()}
            feed |= {"rounds": np.array(rounds), "flag": np.array(flag), "one": np.ones((), np.float32),
                     "lengths": random.integers(1, steps + 1, n).astype(np.int32)}
            made.append({name: feed[name] for name in self.inputs})
        return made
