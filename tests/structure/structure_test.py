"""The folders of src/ may include one another only along the arrows of the design, and the project speaks of itself alone.

An arrow may be skipped (engine may use base), never turned. The arrows are written here once; docs/architecture.md draws them.
"""
import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SRC = ROOT / "src"

# folder: folders it builds on directly
ARROWS = {
    "base": [],
    "formats": ["base"],
    "tensor": ["formats"],
    "backend": ["tensor"],
    "ref": ["backend"],
    "cpu": ["backend"],
    "cuda": ["backend"],
    "files": ["tensor"],
    "text": ["base"],
    "model": ["backend", "files"],
    "kv": ["backend"],
    "sequence": ["kv", "text"],
    "sample": ["sequence"],
    "spec": ["sequence", "model"],
    "engine": ["sample", "spec", "model", "ref", "cpu", "cuda"],
    "quantize": ["sequence", "model"],
    "plan": ["model", "kv", "spec"],
    "eval": ["engine"],
    "cluster": ["engine"],
    "server": ["engine", "text", "plan", "cluster"],
    "cli": ["server", "eval", "quantize", "plan", "cluster"],
}


def reachable(folder):
    seen, queue = {folder}, [folder]
    while queue:
        for below in ARROWS[queue.pop()]:
            if below not in seen:
                seen.add(below)
                queue.append(below)
    return seen


def sources():
    return [p for p in SRC.rglob("*") if p.suffix in {".h", ".cpp", ".cu", ".cuh"}]


class Structure(unittest.TestCase):
    def test_includes_follow_the_arrows(self):
        turned = []
        for path in sources():
            folder = path.relative_to(SRC).parts[0]
            self.assertIn(folder, ARROWS, f"src/{folder} is not in the design's list of folders")
            for number, line in enumerate(path.read_text().splitlines(), 1):
                found = re.match(r'\s*#\s*include\s+"([a-z_]+)/', line)
                if found and found[1] in ARROWS and found[1] not in reachable(folder):
                    turned.append(f"{path.relative_to(ROOT)}:{number} includes {found[1]}")
        self.assertEqual(turned, [])

    def test_the_arrows_have_no_cycle(self):
        for folder, below in ARROWS.items():
            for other in below:
                self.assertNotIn(folder, reachable(other), f"{folder} and {other} depend on each other")

    def test_isa_conditions_stay_in_the_simd_and_cuda_vocabularies(self):
        allowed = {"cpu/simd", "cuda/lib"}
        guilty = []
        for path in sources():
            inside = "/".join(path.relative_to(SRC).parts[:2])
            if inside in allowed:
                continue
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if re.match(r"\s*#\s*(el)?if.*(__AVX|__ARM_NEON|__ARM_FEATURE|RIDGE_ISA)", line):
                    guilty.append(f"{path.relative_to(ROOT)}:{number}")
        self.assertEqual(guilty, [])

    def test_every_source_file_opens_with_what_it_is(self):
        bare = [str(p.relative_to(ROOT)) for p in sources() if p.suffix == ".h" and not p.read_text().startswith("//")]
        self.assertEqual(bare, [])

    def test_no_unfinished_marks(self):
        found = [
            f"{p.relative_to(ROOT)}:{n}"
            for p in sources()
            for n, line in enumerate(p.read_text().splitlines(), 1)
            if re.search(r"\b(TODO|FIXME|XXX|HACK)\b", line)
        ]
        self.assertEqual(found, [])

    def test_the_tracked_tree_stays_small(self):
        listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True)
        if listed.returncode != 0:
            self.skipTest("not a git checkout")
        total = sum((ROOT / name).stat().st_size for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file())
        self.assertLess(total, 45_000_000)


if __name__ == "__main__":
    unittest.main()
