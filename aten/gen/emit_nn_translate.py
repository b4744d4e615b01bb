"""Turns the expressions of nn/modules.toml, which are written in a subset of Python, into the two languages.

`names` says what a name is in the language: `self.x` in Python, an option or member in C++. The subset:
calls, attributes, arithmetic, comparisons, and/or/not, `x is None`, conditional expressions, tuples, subscripts, f-strings
without format specifications; statements: expression, assignment, if, return.
"""

import ast

from .cpp import cpp_text

NAMESPACES = {"init": "init::", "math": "std::"}  # names before a dot that are modules, not objects; and what they are in C++


def _in_namespace(function) -> bool:
    return isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id in NAMESPACES


class _Python(ast.NodeTransformer):
    def __init__(self, names: dict[str, str], helpers: set[str] | None):
        self.names, self.helpers = names, helpers

    def visit_Call(self, node: ast.Call):
        if isinstance(node.func, ast.Name):
            if self.helpers is not None and node.func.id not in self.helpers:
                node.func.id = f"F.{node.func.id}"
        elif not _in_namespace(node.func):
            node.func = self.visit(node.func)
        node.args = [self.visit(a) for a in node.args]
        node.keywords = [ast.keyword(k.arg, self.visit(k.value)) for k in node.keywords]
        return node

    def visit_Name(self, node: ast.Name):
        text = self.names.get(node.id)
        return ast.parse(text, mode="eval").body if text and isinstance(node.ctx, ast.Load) else node


def python_expression(text: str, names: dict[str, str], helpers: set[str] | None = None) -> str:
    """With `helpers` all other functions are those of nn.functional."""
    return ast.unparse(_Python(names, helpers).visit(ast.parse(text.strip(), mode="eval")))


def python_body(text: str, names: dict[str, str], helpers: set[str] | None = None) -> list[str]:
    """Lines of a function's body; a text that is one expression is returned."""
    tree = _Python(names, helpers).visit(ast.parse(text.strip()))
    if len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr):
        tree.body = [ast.Return(tree.body[0].value)]
    return ast.unparse(ast.fix_missing_locations(tree)).splitlines()


_BINARY = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "/", ast.Mod: "%"}
_COMPARE = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}


class Cpp:
    """Expressions and statements as C++ text. `tensors` are the names of (optional) tensors, `order` has the operators: (argument, default)."""

    def __init__(self, names: dict[str, str], tensors: set[str], order: dict[str, list[tuple[str, str | None]]], where: str):
        self.names, self.tensors, self.order, self.where = names, tensors, order, where

    def fail(self, node, why="is not in the subset that turns into C++"):
        raise ValueError(f"{self.where}: `{ast.unparse(node)}` {why}")

    def expression(self, text: str) -> str:
        return self.visit(ast.parse(text.strip(), mode="eval").body)

    def visit(self, node) -> str:
        method = getattr(self, "visit_" + type(node).__name__, None)
        return method(node) if method else self.fail(node)

    def visit_Constant(self, node):
        if isinstance(node.value, str):
            return cpp_text(node.value)
        return "{}" if node.value is None else str(node.value).lower() if isinstance(node.value, bool) else repr(node.value)

    def visit_Name(self, node):
        return self.names.get(node.id, node.id)

    def visit_Attribute(self, node):
        return f"{self.visit(node.value)}.{node.attr}"

    def visit_Tuple(self, node):
        return "{" + ", ".join(self.visit(e) for e in node.elts) + "}"

    visit_List = visit_Tuple

    def visit_Subscript(self, node):
        return f"{self.visit(node.value)}[{self.visit(node.slice)}]"

    def visit_UnaryOp(self, node):
        operator = {ast.USub: "-", ast.Not: "!"}.get(type(node.op)) or self.fail(node)
        return f"{operator}{self.paren(node.operand)}"

    def visit_BinOp(self, node):
        left, right = self.paren(node.left), self.paren(node.right)
        left = f"static_cast<double>({left})" if isinstance(node.op, ast.Div) else left  # true division
        return f"{left} {_BINARY.get(type(node.op)) or self.fail(node)} {right}"

    def visit_BoolOp(self, node):
        return (" && " if isinstance(node.op, ast.And) else " || ").join(map(self.paren, node.values))

    def visit_IfExp(self, node):
        return f"{self.paren(node.test)} ? {self.visit(node.body)} : {self.visit(node.orelse)}"

    def visit_Compare(self, node):
        if len(node.ops) != 1:
            self.fail(node)
        operator, right = node.ops[0], node.comparators[0]
        if isinstance(operator, (ast.Is, ast.IsNot)):
            tensor = isinstance(node.left, ast.Name) and node.left.id in self.tensors
            return "!" * isinstance(operator, ast.Is) + self.visit(node.left) + (".defined()" if tensor else ".has_value()")
        return f"{self.paren(node.left)} {_COMPARE[type(operator)]} {self.paren(right)}"

    def visit_Call(self, node):
        args = [self.visit(a) for a in node.args]
        if isinstance(node.func, ast.Attribute):
            owner = NAMESPACES[node.func.value.id] if _in_namespace(node.func) else self.paren(node.func.value) + "."
            return f"{owner}{node.func.attr}({', '.join(args)})"
        name = node.func.id
        if node.keywords:  # C++ has no keywords: put them where the operator's row has them
            order = self.order.get(name) or self.fail(node, f"has keywords, and no operator `{name}` is known")
            given = {k.arg: self.visit(k.value) for k in node.keywords}
            for argument, default in order[len(args):]:
                if not given:
                    break
                if argument not in given and default is None:
                    self.fail(node, f"does not give `{argument}`")
                args.append(given.pop(argument, default))
            if given:
                self.fail(node, f"names arguments that `{name}` does not have: {', '.join(given)}")
        return "tapegrad::" * (name in self.order) + f"{name}({', '.join(args)})"

    def visit_Starred(self, node):
        return self.visit(node.value)

    def paren(self, node) -> str:
        compound = isinstance(node, (ast.BinOp, ast.BoolOp, ast.IfExp, ast.Compare, ast.UnaryOp))
        return f"({self.visit(node)})" if compound else self.visit(node)

    # Statements.
    def body(self, text: str, returns: bool) -> list[str]:
        tree = ast.parse(text.strip())
        if returns and len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr):
            return [f"return {self.visit(tree.body[0].value)};"]
        return self.statements(tree.body)

    def statements(self, nodes) -> list[str]:
        lines: list[str] = []
        for node in nodes:
            if isinstance(node, (ast.Expr, ast.Return)):
                lines.append("return " * isinstance(node, ast.Return) + self.visit(node.value) + ";")
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                lines.append(f"const auto {node.targets[0].id} = {self.visit(node.value)};")
            elif isinstance(node, ast.If):
                lines += [f"if ({self.visit(node.test)}) {{", *("  " + line for line in self.statements(node.body))]
                lines += (["} else {", *("  " + line for line in self.statements(node.orelse))] if node.orelse else []) + ["}"]
            else:
                self.fail(node)
        return lines


def format_pieces(text: str) -> list[tuple[str, str | None, bool]]:
    """The pieces of a text with {expressions}: (literal, expression or None, wants repr)."""
    return [(v.value, None, False) if isinstance(v, ast.Constant) else ("", ast.unparse(v.value), v.conversion == ord("r"))
            for v in ast.parse("f" + repr(text), mode="eval").body.values]
