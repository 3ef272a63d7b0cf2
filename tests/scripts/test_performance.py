"""`scripts/performance.py`: the tables of the performance page come from the benchmarks' files."""

import importlib.util
import json

import pytest
from run_support import ROOT

pytestmark = pytest.mark.smoke


@pytest.fixture(scope="module")
def performance():
    spec = importlib.util.spec_from_file_location("performance", ROOT / "scripts" / "performance.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_files_say_and_without_them_it_is_refused(performance, tmp_path) -> None:
    assert performance.main(["--check"]) == 0
    with pytest.raises(SystemExit, match=r"a file step_\*.json"):
        performance.written(performance.PAGE.read_text(), tmp_path)


def test_a_new_measurement_is_noticed_and_dated(performance, tmp_path, monkeypatch, capsys) -> None:
    for file in performance.FILES.glob("*.json"):
        result = json.loads(file.read_text())
        result["measured"] |= {"date": "2030-01-02", "processor": "Abacus", "load": 0.5}
        (tmp_path / file.name).write_text(json.dumps(result))
    page = tmp_path / "page.md"
    page.write_text(performance.PAGE.read_text())
    monkeypatch.setattr(performance, "FILES", tmp_path)
    monkeypatch.setattr(performance, "PAGE", page)
    assert performance.main(["--check"]) == 1
    assert "run scripts/performance.py" in capsys.readouterr().err
    assert performance.main([]) == 0 and performance.main(["--check"]) == 0
    text = page.read_text()
    # All steps are one table, and every other file is one.
    tables = 1 + sum(not file.name.startswith("step_") for file in tmp_path.glob("*.json"))
    assert text.count("Measured on 2 January 2030 on") == text.count("of Abacus") == tables
    assert "; load 0.5." in text
