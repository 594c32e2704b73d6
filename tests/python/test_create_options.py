"""`create`: options beside each other."""
import pytest
from pymongo.errors import OperationFailure

SERIES = {"timeseries": {"timeField": "t"}}


@pytest.mark.parametrize(
    "options, code",
    [
        ({**SERIES, "capped": False}, None),
        ({**SERIES, "capped": None}, None),
        ({**SERIES, "size": None, "max": None}, None),
        ({**SERIES, "size": 4096}, 72),
        ({**SERIES, "max": 5}, 72),
        ({**SERIES, "capped": True, "size": 4096}, 72),
        ({**SERIES, "flags": 1}, 72),
        ({"timeseries": None}, None),
        ({"size": 4096, "timeseries": None}, 72),
        ({"clusteredIndex": None}, 14),
        ({"clusteredIndex": None, "capped": True}, 14),
        ({"clusteredIndex": "x"}, 14),
        ({"clusteredIndex": 5}, 5979703),
        ({"clusteredIndex": {}}, 40414),
    ],
)
def test_options_of_create_go_together(db, options, code):
    if code is None:
        assert db.command("create", "n", **options)["ok"] == 1
        return
    with pytest.raises(OperationFailure) as failure:
        db.command("create", "n", **options)
    assert failure.value.code == code
    assert "n" not in db.list_collection_names()
