"""Dates in text, as `$dateFromString` and `$toDate` read them without a format."""
import datetime

import pytest
from pymongo.errors import OperationFailure


def read(c, text, **options):
    c.drop()
    c.insert_one({"text": text})
    date = {"$dateFromString": {"dateString": "$text", **options}}
    return next(c.aggregate([{"$project": {"_id": 0, "date": date, "same": {"$toDate": "$text"}}}]))["date"]


@pytest.mark.parametrize("text, expected", [
    ("Mon, 15 Aug 2005 15:52:01 +0200", "2005-08-15T13:52:01"),
    ("Saturday, 29-Feb-20 01:02:03 UTC", "2020-02-29T01:02:03"),
    ("Tue Mar  3 05:06:07 2020", "2020-03-03T05:06:07"),
    ("Tue Mar 03 05:06:07 EST 2020", "2020-03-03T10:06:07"),
    ("05/10/2020 11:27:26 PM", "2020-05-10T23:27:26"),
    ("5/10/20 12:05 a.m.", "2020-05-10T00:05:00"),
    ("10/Oct/2000:13:55:36 -0700", "2000-10-10T20:55:36"),
    ("2020:02:29 11:22:33", "2020-02-29T11:22:33"),
    ("20200229112233", "2020-02-29T11:22:33"),
    ("29.02.20", "2020-02-29T00:00:00"),
    ("February 29th, 2020", "2020-02-29T00:00:00"),
    ("1 XII 2020", "2020-12-01T00:00:00"),
    ("2020-060 11:22", None),
    ("11:22:33 2020-02-29", "2020-02-29T11:22:33"),
    ("2020-02-29, 11:22", "2020-02-29T11:22:00"),
    ("@1234567890.5", "2009-02-13T23:31:30.500"),
    ("2020-02-29 noon", "2020-02-29T12:00:00"),
    ("2020-02-29 +1 week 2 days ago", "2020-02-20T00:00:00"),
    ("first monday of january 2020", "2020-01-06T00:00:00"),
    ("last day of feb 2020", "2020-02-29T00:00:00"),
    ("2020-02-29 2 weekdays ago", "2020-02-27T00:00:00"),
    # A time without colons has a fraction before the second.
    ("2020-02-29T1122", "2020-02-29T11:21:59.900"),
    # The comma ends the date, and the year after it is a time.
    ("5 May, 2020", None),
])
def test_a_date_has_many_spellings(c, text, expected):
    if expected is None:
        with pytest.raises(OperationFailure) as error:
            read(c, text)
        assert error.value.code == 241
    else:
        assert read(c, text) == datetime.datetime.fromisoformat(expected)


def test_the_mistakes_of_a_text_are_listed_with_their_places(c):
    with pytest.raises(OperationFailure) as error:
        read(c, "2020-02-30 11:22:60 + x EST")
    assert error.value.details["errmsg"].endswith(
        "Error parsing date string '2020-02-30 11:22:60 + x EST'; 20: Unexpected character '+'; "
        "24: Double timezone specification 'E'; 28: The parsed time was invalid '\0'; "
        "28: The parsed date was invalid '\0'")


def test_a_zone_within_the_text_excludes_another(c):
    assert read(c, "5/10/2020 11:27 PM", timezone="Europe/Paris") == datetime.datetime(2020, 5, 10, 21, 27)
    with pytest.raises(OperationFailure, match="GMT offset together with a timezone argument"):
        read(c, "@5", timezone="Europe/Paris")


def test_a_text_by_a_format(c):
    def by(text, format, **options):
        c.drop()
        c.insert_one({"text": text})
        date = {"$dateFromString": {"dateString": "$text", "format": format, **options}}
        return next(c.aggregate([{"$project": {"_id": 0, "date": date}}]))["date"]

    assert by("2020-02-29 11:22:33.5 EST", "%Y-%m-%d %H:%M:%S.%L %z") == datetime.datetime(
        2020, 2, 29, 16, 22, 33, 500_000)
    with pytest.raises(OperationFailure) as error:
        by("2020/13/29 24:00", "%Y-%m-%d %H:%M")
    assert error.value.details["errmsg"].endswith(
        "Error parsing date string '2020/13/29 24:00'; 4: Format literal not found '/'; "
        "7: Format literal not found '/'; 16: The parsed time was invalid '\0'; "
        "16: The parsed date was invalid '\0'")
    with pytest.raises(OperationFailure, match=r"time zone information \('EST'\) together with"):
        by("2020-02-29 est", "%Y-%m-%d %z", timezone="UTC")
    # An offset of zero counts as no zone, unlike the name of UTC.
    assert by("2020-02-29 est", "%Y-%m-%d %z", timezone="+00") == datetime.datetime(2020, 2, 29, 5)
