"""The example in CONTRIBUTING.md works, and the README's tables are complete."""

import re

import torch
import yaml

from bolt import config as configuration
from bolt.atlas_files import ATLASES
from bolt.config import ROOT, Model
from bolt.models._registry import create_model


def test_the_example_model_can_be_made_and_called():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]
    settings = yaml.safe_load(re.search(r"```yaml\n(.*?)```", text, re.DOTALL)[1])
    exec(compile(code, "CONTRIBUTING.md", "exec"), {"__name__": "example"})
    model = Model(name="example", **settings)
    net = create_model(model.model, n_rois=5, n_classes=2, **model.hyper)
    output = net(torch.randn(3, 12, 5))
    assert output.logits.shape == (3, 2)


def test_every_model_and_atlas_has_its_line_in_the_readme():
    text = (ROOT / "README.md").read_text()
    for name in [*configuration.known("model"), *(path.parent.name for path in ATLASES.glob("*/atlas.yaml"))]:
        assert f"| `{name}` |" in text, name


def test_every_command_of_the_readme_is_one_the_makefile_or_cli_knows():
    text = (ROOT / "README.md").read_text()
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", text, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
    for path in re.findall(r"(?:config|workflow|docs|atlases)/[\w/.-]+\.(?:yaml|md|png|smk)", text):
        if "my_study" not in path:
            assert (ROOT / path).is_file(), path
