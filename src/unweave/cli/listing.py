"""`unweave methods` and `unweave benchmarks`: lists of both."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from unweave.cli.app import app, listing, out_console
from unweave.cli.options import AsJson

if TYPE_CHECKING:
    from unweave.lab.benchmarks import MethodSettings


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="Name of a method, to show its settings and profiles.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the methods, or show the settings of one."""
    from unweave.methods import all_methods, find_method

    chosen = [find_method(name)] if name else list(all_methods().values())
    if as_json:
        content = [
            {
                "name": method.name,
                "summary": method.summary,
                "needs": method.needs,
                "profiles": {profile: dict(values) for profile, values in method.profiles.items()},
                "settings": method.describe(),
            }
            for method in chosen
        ]
        typer.echo(json.dumps(content[0] if name else content))
        return
    if name is None:
        out_console.print(listing((method.name, method.summary) for method in chosen))
        return
    method = chosen[0]
    out_console.print(f"{method.name}: {method.summary}\n", highlight=False, markup=False)
    for row in method.describe():
        limits = f", {row['limits']}" if row["limits"] else ""
        typer.echo(f"{row['name']} = {row['default']}  ({row['type']}{limits})\n    {row['help']}")
        if row["search"]:
            typer.echo(f"    tuned: {row['search']}")
    for profile, values in method.profiles.items():
        text = ", ".join(f"{key}={value}" for key, value in values.items()) or "the defaults above"
        out_console.print(f"\nprofile {profile}: {text}", highlight=False, markup=False)


def _own_settings(settings: MethodSettings) -> Table:
    """Return a table of the methods that a benchmark has values for, with the number of them in every profile."""
    table = Table(box=None, pad_edge=False, show_edge=False)
    for name in ("method", "profiles with values of this benchmark (how many)"):
        table.add_column(name)
    for method, profiles in settings.items():
        said = ", ".join(f"{profile} ({len(values)})" for profile, values in profiles.items() if values)
        if said:
            table.add_row(method, said)
    return table


@app.command()
def benchmarks(
    name: Annotated[str | None, typer.Argument(help="Name of a benchmark, to show its recipe and settings.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the benchmarks, or show the recipe and settings of one."""
    from unweave.lab.benchmarks import BENCHMARKS, find_benchmark

    if name is None:
        if as_json:
            typer.echo(json.dumps([{"name": entry.name, "summary": entry.summary} for entry in BENCHMARKS.values()]))
        else:
            out_console.print(listing((entry.name, entry.summary) for entry in BENCHMARKS.values()))
        return
    benchmark = find_benchmark(name)
    content: dict[str, Any] = {
        "name": name,
        "summary": BENCHMARKS[name].summary,
        "options": BENCHMARKS[name].options.describe(),
        "recipe": benchmark.recipe.to_dict(),
        "settings": benchmark.settings,
        "tuned": benchmark.tuned,
    }
    if as_json:
        typer.echo(json.dumps(content))
        return
    out_console.print(f"{name}: {content['summary']}\n", highlight=False, markup=False)
    for row in content["options"]:
        typer.echo(f"--option {row['name']}={row['default']}  ({row['type']})\n    {row['help']}")
    recipe = "  ".join(f"{key}={value}" for key, value in content["recipe"].items())
    out_console.print(f"\nrecipe: {recipe}\n", highlight=False, markup=False)
    out_console.print(_own_settings(benchmark.settings))
    out_console.print(
        "\nAll values: --json. Defaults of a method: unweave methods NAME.\n", highlight=False, markup=False
    )
    for profile, about in benchmark.tuned.items():
        made = about["provenance"]["runs"][-1]
        chosen = " ".join(f"{option}={value}" for option, value in about["options"].items())
        out_console.print(
            f"profile {profile}: goal {about['goal']}, {about['trials']} trials of each method"
            f"{f' on {chosen}' if chosen else ''}, commit {str(made['commit'])[:12]}, {made['date'][:10]}",
            highlight=False,
            markup=False,
        )
