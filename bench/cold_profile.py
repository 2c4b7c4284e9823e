"""Scratch: where the seconds of a first compiled pass go. Not kept.

    python -m bench.cold_profile [--size 224] [--out FOLDER]
"""

from __future__ import annotations

import time

BEGUN = time.time()

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path


def say(text: str) -> None:
    print(f"[{time.time() - float(os.environ.get('PARENT', BEGUN)):6.2f}] {text}", flush=True)


def child(kind: str, size: int, file: Path, device_name: str) -> None:
    say(f"python is up ({kind})")
    import torch

    say("import torch")
    import torch._dynamo

    say("import torch._dynamo")
    import torch._inductor.compile_fx

    say("import torch._inductor.compile_fx")
    device = torch.device(device_name)
    cuda = device.type == "cuda"
    if cuda:
        torch.zeros(1, device=device)
        say("CUDA context")
    from bench import workloads
    from unweave.engine import Workbench
    from unweave.engine.compiling import folding, forwards

    say("import unweave and bench")
    if kind == "load artifacts":
        data = file.read_bytes()
        say(f"read {len(data) / 1e6:.1f} MB")
        torch.compiler.load_cache_artifacts(data)
        say("load_cache_artifacts")

    def wait() -> None:
        if cuda:
            torch.cuda.synchronize()

    workload = workloads.images(size=size, train=6000, test=100)
    wait()
    say("data")

    def bench_of(way: str) -> Workbench:
        bench = Workbench(workload.ours().to(device), workload.train, device=device, compile=way)
        bench.mode("eval")
        return bench

    def laps(bench: Workbench, batch: object, count: int, name: str) -> None:
        for number in range(count):
            start = time.time()
            bench.gradient([bench.losses(batch).mean()])
            wait()
            say(f"{name}: pass {number} took {time.time() - start:.3f} s")

    from torch._dynamo.utils import compile_times, counters

    def told(name: str) -> None:
        found = {group: dict(values) for group, values in counters.items() if group in ("aot_autograd", "inductor")}
        say(f"{name}: counters {found}")
        if kind != "profile":
            head, *rows = compile_times(repr="csv", aggregate=True)
            names, seconds = (list(rows[0]) if rows else [], []) if not isinstance(head, (list, tuple)) else (head, rows[0])
            pairs = sorted(zip(names, seconds), key=lambda pair: -float(pair[1]))[:24]
            print("   ", "; ".join(f"{n} {float(v):.2f}" for n, v in pairs), flush=True)
        counters.clear()

    large = 512 if cuda else 16
    plain = bench_of("off")
    remote = plain.batches("remote", size=large)[0]
    small = plain.batches("remote", size=144 if cuda else 8)[0]
    if kind == "first":
        laps(plain, remote, 3, "plain, large")
        from unittest.mock import patch

        def only_folded(graph, examples):
            folding.rewrite(graph)
            return graph.forward

        with patch.object(forwards, "BACKEND", only_folded):
            laps(bench_of("on"), remote, 4, "folded without inductor, large")
        torch._dynamo.reset()
        forwards._WARM.clear()
    bench = bench_of("on")
    forwards.Forwards._pays = lambda *_: True
    if kind == "profile":
        import cProfile
        import io
        import pstats

        profiler = cProfile.Profile()
        profiler.enable()
        laps(bench, remote, 1, "compiled, large")
        profiler.disable()
        for order in ("cumulative", "tottime"):
            text = io.StringIO()
            pstats.Stats(profiler, stream=text).sort_stats(order).print_stats(70)
            (file.parent / f"profile-{order}.txt").write_text(text.getvalue())
        return
    laps(bench, remote, 3, "compiled, large")
    told("large")
    if kind == "first":
        start = time.time()
        artifacts = torch.compiler.save_cache_artifacts()
        data = artifacts[0] if artifacts else b""
        file.write_bytes(data)
        say(f"save_cache_artifacts: {time.time() - start:.2f} s, {len(data) / 1e6:.1f} MB")
        laps(bench, small, 3, "compiled, small")
        told("small")
    say("end")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--kind", default="")
    parser.add_argument("--file", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=Path("."))
    words = parser.parse_args()
    if words.kind:
        child(words.kind, words.size, words.file, words.device)
        return
    with tempfile.TemporaryDirectory() as folder:
        file = words.out.resolve() / "artifacts.bin"
        for kind, cache in (("first", "a"), ("second", "a"), ("load artifacts", "b"), ("profile", "c")):
            print(f"--- {kind}", flush=True)
            environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": f"{folder}/{cache}", "PARENT": str(time.time())}
            environment["TRITON_CACHE_DIR"] = f"{folder}/{cache}/triton"
            subprocess.run(
                [sys.executable, "-m", "bench.cold_profile", "--kind", kind, "--file", str(file)]
                + ["--size", str(words.size), "--device", words.device],
                env=environment, check=False, timeout=100 if words.device == "cuda" else 900,
            )
    text = (words.out / "profile-cumulative.txt").read_text().splitlines()
    print("\n".join(line[:120] for line in text[:38]), flush=True)
    file.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
