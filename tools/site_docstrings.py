# SPDX-License-Identifier: Apache-2.0
"""The Python package for the site's reference: paragraphs of arguments in docstrings become lists, and so on.

An argument is a line that begins with names of the function's own: "pool: the pool", "device, options: as for Pool";
lines that are indented below it go on with it.
"""

import re

import griffe

ARGUMENTS = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*): ")


def listed(text, names):
    """A docstring's text with its arguments as items of lists."""
    made, inside = [], False
    for line in text.split("\n"):
        found = ARGUMENTS.match(line)
        is_item = found is not None and {name.strip("*") for name in found[1].split(", ")} <= names
        goes_on = inside and line.startswith("    ")
        if made and made[-1] and is_item != inside and not goes_on:
            made.append("")  # a list begins, or ends
        if is_item:
            line = "- " + ", ".join(f"`{name}`" for name in found[1].split(", ")) + line[len(found[1]):]
        made.append("  " + line.strip() if goes_on else line)
        inside = is_item or goes_on
    return "\n".join(made)


def list_arguments(thing, function):
    if thing.docstring:
        thing.docstring.value = listed(thing.docstring.value, {each.name for each in function.parameters})


class Arguments(griffe.Extension):
    """The extension of griffe that mkdocs.yml names."""

    def on_class_members(self, *, cls, **_):
        """Adds what a .pyi file has by overloads alone, and leaves out special methods of which nothing is said."""
        for name, several in cls.overloads.items():
            if name not in cls.members:
                several[0].overloads = several[1:]
                cls.set_member(name, several[0])
        if "__new__" in cls.members:
            cls.set_member("__init__", cls.members["__new__"])
            cls.members["__init__"].name = "__init__"  # as which it is shown with the class
            cls.del_member("__new__")
        if "__init__" in cls.members:
            list_arguments(cls, cls.members["__init__"])
        for name, member in list(cls.members.items()):
            if re.fullmatch(r"__\w+__", name) and name != "__init__" and not member.docstring:
                cls.del_member(name)

    def on_function(self, *, func, **_):
        list_arguments(func, func)
