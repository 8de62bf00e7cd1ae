"""Options of commands: those that several have, and that one that takes a single value is given once."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

#: Of commands that print tables or lines for people.
AS_JSON = typer.Option("--json", help="Print JSON for machines.")
ModelKeys = Annotated[
    list[str] | None,
    typer.Option("--model", "-m", metavar="KEY=VALUE", help="Set a key of the model config; repeatable."),
]
Modules = Annotated[
    list[str] | None,
    typer.Option("--import", metavar="MODULE", help="Import a module that registers environments; repeatable."),
]


class Command(TyperCommand):
    """A command that refuses a single option given twice, of which the parser would silently take the last."""

    def make_parser(self, ctx: Any) -> Any:
        """Return the parser, which counts what it is given; nothing is converted or run before."""
        parser = super().make_parser(ctx)
        parse = parser.parse_args

        def parse_once(args: list[str]) -> Any:
            found = parse(args=args)
            order = found[2]  # each parameter as often as it was given
            for parameter in order:
                if order.count(parameter) > 1 and _is_single(parameter):
                    name = max(parameter.opts, key=len)
                    ctx.fail(f"{name} is given {_times(order.count(parameter))}; it takes one value. Say it once.")
            return found

        parser.parse_args = parse_once  # type: ignore[method-assign]
        return parser


def _is_single(parameter: Any) -> bool:
    """Return whether a parameter is an option for one value; `--help` and its like end the command before."""
    several = parameter.multiple or getattr(parameter, "count", False)
    return parameter.param_type_name == "option" and not several and not parameter.is_eager


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"
