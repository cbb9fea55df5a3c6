"""The README's example of training with hot rows at the GPU, on the simulated card."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_example_of_the_readme_runs(capsys):
    code = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    (example,) = [block for block in code if "Hotline([" in block]
    exec(example, {})
    first, second = capsys.readouterr().out.splitlines()
    hot, popular, samples, batches = (int(word) for word in re.findall(r"\d+", first))
    assert 0 < hot <= 2048 and 0 < popular < samples == 4000 and batches >= 250
    rows, dim, cycles, busy = (int(word) for word in re.findall(r"\d+", second))
    assert (rows, dim) == (3000, 16) and 0.5 * cycles < busy < cycles
    assert second.endswith("of them the GPU at work")
