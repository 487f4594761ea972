"""The study of confounded designs prints what its simulation plants."""

import pytest
from benchmarks.studies.confounding import DESIGNS, main


def test_batch_genes_stay_where_batches_are_registered(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--seeds", "0"])
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")][2:]
    assert [row[0].removeprefix("| ") for row in rows] == list(DESIGNS)
    *crossed, plates = rows
    assert all(float(row[1]) < 0.1 and row[-1].startswith("no") for row in crossed)
    assert float(plates[1]) > 1 and plates[-1].startswith("yes")
