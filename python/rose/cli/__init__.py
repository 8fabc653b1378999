"""The command `rose`.

Each command has a file of its own. Importing this package loads neither torch nor grpc; a command
loads what it needs when it runs.
"""

from __future__ import annotations

import re

import typer

from rose.cli import check, demo, embed, gateway, info, score, serve, warm
from rose.cli.failure import EXIT_REFUSED, EXIT_USAGE, fail
from rose.cli.terminal import prepare_streams
from rose.errors import EngineFailedError, RoseError

# typer carries its own copy of click's exceptions, without a public name for their base.
_UsageException: type[Exception] = typer.BadParameter.__mro__[2]

app = typer.Typer(
    name="rose",
    help="Reranking and embedding: a gRPC and HTTP server for one model, and a client for it.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("serve")(serve.serve)
app.command("gateway")(gateway.gateway)
app.command("score")(score.score)
app.command("embed")(embed.embed)
app.command("info")(info.info)
app.command("warm")(warm.warm)
app.command("check")(check.check)
app.command("demo")(demo.demo)


def _print_version(wanted: bool) -> None:
    if wanted:
        from rose import __version__

        print(f"rose {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", help="Print the version.", is_eager=True, callback=_print_version
    ),
) -> None:
    pass


def _usage_message(error: Exception) -> str:
    message: str = error.format_message()  # type: ignore[attr-defined]
    # typer writes the variables of an option as a list, whether or not the value came from one.
    message = re.sub(
        r" \(env var: '\[(.*?)\]'\)",
        lambda names: f" (or {' or '.join(re.findall(r'[A-Z_]+', names[1]))})",
        message,
    )
    # pydantic checked the value, and typer's message leaves it out.
    errors = getattr(error.__cause__, "errors", None)
    if errors is None:
        return message
    given = repr(errors()[0]["input"])
    message = message.replace("Value error, ", "", 1).rstrip(".")
    return message if given in message else f"{message}, got {given}"


def main() -> int:
    """Runs the command line; returns the exit status.

    0 is success, 1 that the server said no, an item failed or a running engine broke, 2 wrong
    usage, 130 Ctrl-C. What went wrong is one line on stderr, without a traceback.
    """
    prepare_streams()
    try:
        result = app(standalone_mode=False)
    except _UsageException as error:
        return fail(_usage_message(error), EXIT_USAGE)
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except RoseError as error:
        # A call's error has a code, and came from the server.
        refused = hasattr(error, "code") or isinstance(error, EngineFailedError)
        return fail(str(error), EXIT_REFUSED if refused else EXIT_USAGE)
    except OSError as error:  # a port, a file or a disk
        return fail(str(error), EXIT_USAGE)
    return result if isinstance(result, int) else 0
