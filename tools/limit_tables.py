"""The tables of docs/speed.md about limits on the H200: of the device, of memory, of one device for many runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from speed_tables import SPEED, further, lines, read

FILES = ("roofline", "memory", "packed", "plain")  # in results/speed/h200


def rates(found: Mapping[str, Any]) -> str:
    """Return the measured rates of the device."""
    rate = found["rates"]
    rows = [
        ["large bfloat16 matrix products", f"{rate['operations'] / 1e12:.0f} TFLOP/s"],
        ["a copy of 2 GiB, read and written", f"{rate['copy_bytes'] / 1e12:.2f} TB/s"],
        ["a multiply-add over 2 GiB, read and written", f"{rate['multiply_add_bytes'] / 1e12:.2f} TB/s"],
        ["kernels that the host launches one by one", f"{round(rate['launches'], -3):,.0f} a second"],
        ["kernels of a CUDA graph, one after the other", f"{round(rate['launches_in_a_graph'], -3):,.0f} a second"],
    ]
    return lines(["limit", "measured"], rows)


def floors(found: Mapping[str, Any]) -> str:
    """Return what a step takes, its floors, and how far it is above the largest."""
    rows = [
        [
            name,
            f"{1e3 * row['seconds']:.2f}",
            *(f"{1e3 * row['floors'][by]:.2f}" for by in ("operations", "bytes", "launches")),
            f"{row['of_the_floor']:.1f} × {row['limit']}",
            f"{row['kernels']:,}",
            f"{min(1.0, row['kernel_seconds'] / row['seconds']):.0%}",
        ]
        for name, row in found["workloads"].items()
    ]
    floor = [f"floor by {by}" for by in ("operations", "bytes", "launches")]
    return lines(["ms a step", "measured", *floor, "above the largest", "kernels", "device busy"], rows)


def gradients(found: Mapping[str, Any]) -> str:
    """Return the peaks at 10⁹ parameters."""
    some = found["gradients"]
    rows = [
        [
            name,
            f"{row['peak_bytes'] / 1e9:.1f} GB",
            f"{some['gradients_above_fine_tuning'].get(name, 0.0):+.2f}" if name != "fine-tuning" else "",
        ]
        for name, row in some["rows"].items()
    ]
    return lines([f"{some['parameters']:,} parameters", "peak", "gradients above fine-tuning"], rows)


def limited(found: Mapping[str, Any]) -> str:
    """Return what runs take of the memory that they may take, and how much longer a step takes than without a limit."""
    rows = []
    for name, each in found["limits"].items():
        for row in each:
            limit = row["limit_bytes"]
            held = "" if limit is None else f"{row['taken_of_limit']:.1%}"
            slower = f"{row['times_as_long']:.2f}" if "times_as_long" in row else "ran out of memory"
            rows.append(
                [
                    name,
                    "none" if limit is None else f"{limit / 1e9:.2f} GB",
                    f"{row['taken_bytes'] / 1e9:.2f} GB",
                    held,
                    str(row.get("samples_at_once") or "all"),
                    slower,
                ]
            )
    return lines(["", "limit", "taken", "of the limit", "samples at once", "a step takes × as long"], rows)


def workers(found: Mapping[str, Any]) -> str:
    """Return the speed of several workers on one device."""
    rows = [
        [str(row["workers"]), f"{row['steps_per_second']:.0f}", f"{row['of_the_ideal']:.0%}"] for row in found["rows"]
    ]
    return lines(["workers", "steps/s together", "of the ideal"], rows)


def plain(found: Mapping[str, Any]) -> str:
    """Return the whole protocol of the plain loop and of ours, the first time and again."""
    rows = [
        [name, *(f"{found[side][when]['whole_seconds']:.1f} s" for side in ("plain", "ours"))]
        for name, when in (("the first time", "first"), ("again", "again"))
        if all(when in found.get(side, {}) for side in ("plain", "ours"))
    ]
    return lines(["the whole protocol", "plain good loop", "ours"], rows)


def all_tables() -> Iterator[str]:
    """Yield the tables of the files that are there."""
    tables: dict[str, tuple[Callable[[Mapping[str, Any]], str], ...]] = {
        "roofline": (rates, floors),
        "memory": (gradients, limited),
        "packed": (workers,),
        "plain": (plain,),
    }
    for name in FILES:
        if (SPEED / "h200" / f"{name}.json").exists():
            found = read(f"h200/{name}.json")
            for more in further(name):  # such as workloads, each with the rates that were measured beside them
                for part in ("workloads", "limits"):
                    found.setdefault(part, {}).update(more.get(part, {}))
            yield from (table(found) for table in tables[name])


if __name__ == "__main__":
    print("\n\n".join(all_tables()))
