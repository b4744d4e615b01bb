"""The operators of a program one by one, as `torch.fx` shows them."""

from __future__ import annotations


class Node:
    """A value or an operator of a program: `op` is "placeholder", "get_attr" (a weight or constant), "call_function" or "output"; `target` the
    function's name, or the value's; `args` the arguments, with nodes in the place of tensors; `meta` has `dtype` and `shape` of its result,
    and `line`; of control flow (`cond`, `while_loop`) `bodies`, the graphs of both branches, or of the predicate and a turn."""

    def __init__(self, op: str, name: str, target: str, args: tuple = (), meta: dict | None = None) -> None:
        self.op, self.name, self.target, self.args, self.kwargs = op, name, target, args, {}
        self.meta = meta or {}
        self.users: dict[Node, None] = {}

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes among the arguments."""
        found: dict[Node, None] = {}
        for arg in self.args:
            for item in arg if isinstance(arg, (list, tuple)) else [arg]:
                if isinstance(item, Node):
                    found[item] = None
        return list(found)

    def __repr__(self) -> str:
        return self.name

    def format_node(self) -> str:
        """One line."""
        if self.op == "placeholder":
            return f"%{self.name} : [num_users={len(self.users)}] = placeholder[target={self.target}]"
        if self.op == "output":
            return f"return {self.args[0]}"
        return f"%{self.name} : [num_users={len(self.users)}] = {self.op}[target={self.target}](args = {self.args})"


class Graph:
    """The nodes of a program in order. An operator with several results is a node, and each result a node with the target "getitem"."""

    def __init__(self, program) -> None:
        info = {name: {"dtype": dtype, "shape": shape} for name, dtype, shape, _ in program.values()}
        known: dict[str, Node] = {}
        self.nodes: list[Node] = []

        def add(node: Node) -> Node:
            self.nodes.append(node)
            for used in node.all_input_nodes:
                used.users[node] = None
            return node

        inputs = program.inputs()
        for name, _, _, constant in program.values():
            if constant is not None and name not in inputs:
                known[name] = add(Node("get_attr", name, name, meta=info[name]))
        for name in inputs:
            known[name] = add(Node("placeholder", name, name, meta=info[name]))
        for number, (function, arguments, tensors, results, line, _) in enumerate(program.operations()):
            for argument, item, value in tensors:
                if item < 0:
                    arguments[argument] = known[value]
                else:
                    arguments[argument][item] = known[value]
            single = len(results) == 1 and results[0] is not None
            name = results[0] if single else f"{function}_call_{number}"
            node = add(Node("call_function", name, function, tuple(arguments), {**(info[name] if single else {}), "line": line.strip()}))
            if bodies := program.bodies(number):
                node.meta["bodies"] = [Graph(body) for body in bodies]
            if single:
                known[name] = node
            else:
                for i, result in enumerate(results):
                    if result is not None:
                        known[result] = add(Node("call_function", result, "getitem", (node, i), info[result]))
        add(Node("output", "output", "output", ([known[n] for n in program.outputs()],)))

    def __iter__(self):
        return iter(self.nodes)

    def find_nodes(self, *, op: str, target: str | None = None, sort: bool = True) -> list[Node]:
        """The nodes of a kind, and of a target where one is given."""
        return [n for n in self.nodes if n.op == op and target in (None, n.target)]

    def print_tabular(self) -> None:
        """Prints a table of the nodes."""
        for node in self.nodes:
            print(f"{node.op:15} {node.name:25} {node.target:25} {node.args}")

    def __str__(self) -> str:
        return "graph():\n" + "\n".join("    " + node.format_node() for node in self.nodes)


__all__ = ["Graph", "Node"]
