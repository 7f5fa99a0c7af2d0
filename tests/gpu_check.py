#!/usr/bin/env python3
"""All tests that need a GPU, on a machine that has one, after `./ridge test` (or `./ridge build`) there:

    tests/gpu_check.py [--build build/release] [--golden FOLDER ...] [--memcheck] [--racecheck BUILD] [--jobs N]

The conformance suite's and the engine's CUDA tests in shards side by side, then the golden cases with --device cuda, in f32 and as requests are served (families that CUDA has no kernels for are refused by name, and
counted as such). --memcheck and --racecheck run a part of them under compute-sanitizer, too, the latter those of BUILD, a build folder
configured with -DRIDGE_RACECHECK=ON: racecheck does not understand one lane that arrives for its warp. Exits with 1 when anything failed, was skipped or did not run."""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
LONG = "Cuda.LayersInOneStepGiveTheBitsOfOneByOne"                         # takes as long as a shard
MEMCHECKED = "Cuda.ATokensResultIsTheSameInAnyBatch:Cuda.ANormsRows*:Cuda.Mxfp4*:Cuda.Minimum*"
RACECHECKED = "Cuda.ATokensResultIsTheSameInAnyBatch:Cuda.MatmulsAreTheSums*"
REFUSED = re.compile(r"models need the op .* for which .* has no kernel")


def run_tests(name, binary, gtest_filter, shard, n_shards, before=()):
    """Runs a shard of a test program; returns its name, how many passed, what failed, what was skipped, seconds."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        env = dict(os.environ, GTEST_TOTAL_SHARDS=str(n_shards), GTEST_SHARD_INDEX=str(shard))
        done = subprocess.run([*before, str(binary), f"--gtest_filter={gtest_filter}", f"--gtest_output=json:{report}"], cwd=ROOT, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        passed, failed, skipped = 0, [], []
        suites = json.loads(report.read_text())["testsuites"] if report.exists() else []
    for suite in suites:
        for test in suite["testsuite"]:
            full = f"{suite['name']}.{test['name']}"
            if test.get("failures"):
                failed.append(f"{full}: {': '.join(test['failures'][0]['failure'].splitlines()[:3])}")
            elif test["result"] == "SKIPPED":
                skipped.append(full)
            elif test["result"] == "COMPLETED":
                passed += 1
    if done.returncode != 0 and not failed:
        failed.append(f"{name} shard {shard} ended with {done.returncode}: {done.stdout.strip().splitlines()[-1:]}")
    return name, passed, failed, skipped, time.monotonic() - start


def check_golden(name, ridge, folders, *flags):
    start = time.monotonic()
    done = subprocess.run([str(ridge), "eval", "golden", *folders, "--device", "cuda", "--json", *flags], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        cases = json.loads(done.stdout)
    except json.JSONDecodeError:
        return name, 0, [f"ridge eval golden: {done.stderr.strip()}"], [], time.monotonic() - start
    passed = sum(case["passed"] for case in cases)
    refused = [case["case"] for case in cases if REFUSED.search(case.get("error", ""))]
    failed = [f"{case['case']}: {case.get('error', 'differs')}" for case in cases if not case["passed"] and case["case"] not in refused]
    return f"{name}, {len(refused)} refused" if refused else name, passed, failed, [], time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release", help="the build folder")
    parser.add_argument("--golden", nargs="+", default=["tests/data/golden"], help="folders of golden cases")
    parser.add_argument("--memcheck", action="store_true", help="a part of the tests under compute-sanitizer's memcheck, too")
    parser.add_argument("--racecheck", type=pathlib.Path, metavar="BUILD", help="a part of the tests of this build folder under compute-sanitizer's racecheck, too")
    parser.add_argument("--jobs", type=int, default=max(1, min(13, (os.cpu_count() or 2) - 1)), help="test programs at once")
    args = parser.parse_args()
    conformance, engine, ridge = args.build / "tests" / "test_conformance", args.build / "tests" / "test_engine", args.build / "ridge"
    raced = args.racecheck / "tests" / "test_conformance" if args.racecheck else None
    for program in filter(None, (conformance, engine, ridge, raced)):
        if not program.exists():
            sys.exit(f"gpu_check: {program} is not there; build with `./ridge test` first, or name the folder with --build")
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if (args.memcheck or raced) and not os.path.exists(tool):
        sys.exit("gpu_check: --memcheck and --racecheck need compute-sanitizer, which is part of the CUDA toolkit")
    if run_tests("conformance", conformance, "Cuda.DamagedFp8IsRefusedByName", 0, 1)[3]:
        sys.exit("gpu_check: no CUDA device can be used here; `ridge run --device cuda` says why")
    work = [("conformance", conformance, LONG, 0, 1)]
    work += [("conformance", conformance, f"Cuda*:*Cuda*:*OnAGpu*-{LONG}", shard, 8) for shard in range(8)]
    work += [("engine", engine, "*Cuda*:*OnAGpu*", shard, 4) for shard in range(4)]
    for check, program, tests in (("memcheck", conformance if args.memcheck else None, MEMCHECKED), ("racecheck", raced, RACECHECKED)):
        if program:
            work.append((check, program, tests, 0, 1, (tool, "--tool", check, "--error-exitcode", "9")))
    results = {}
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        futures = [pool.submit(run_tests, *shard) for shard in work]
        for future in concurrent.futures.as_completed(futures):
            name, *rest = future.result()
            results.setdefault(name, []).append(rest)
            print(f"{sum(len(parts) for parts in results.values())} of {len(work)} done", file=sys.stderr)
    as_served = ("--as-served", str(ROOT / "tests" / "data" / "golden" / "bf16.json"))
    for name, flags in (("golden in f32", ()), ("golden as served", as_served), ("golden, KV in bf16", (*as_served, "--kv-cache-dtype", "bf16"))):
        name, *rest = check_golden(name, ridge, args.golden, *flags)
        results[name] = [rest]

    print(f"{'tests':<30}{'passed':>8}{'failed':>8}{'skipped':>9}{'seconds':>9}")
    bad = False
    for name, parts in results.items():
        failed, skipped = [test for part in parts for test in part[1]], [test for part in parts for test in part[2]]
        print(f"{name:<30}{sum(part[0] for part in parts):>8}{len(failed):>8}{len(skipped):>9}{max(part[3] for part in parts):>9.0f}")
        bad |= bool(failed or skipped) or sum(part[0] for part in parts) == 0
        for line in failed:
            print(f"  {line}")
        if skipped:
            print(f"  skipped: {', '.join(skipped[:3])}{', ...' if len(skipped) > 3 else ''}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
