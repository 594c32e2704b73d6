"""Numbers and dates at the ends of their ranges, with the results of mongod 6.0."""
import datetime

import pytest
from bson import Decimal128, Int64
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.datetime_ms import DatetimeMS
from pymongo.errors import OperationFailure


def value_of(c, expression, **fields):
    c.drop()
    c.insert_one(fields)
    milliseconds = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_MS)
    pipeline = [{"$project": {"_id": 0, "value": expression}}]
    return next(c.with_options(milliseconds).aggregate(pipeline))["value"]


def mistake_of(c, expression, **fields):
    with pytest.raises(OperationFailure) as error:
        value_of(c, expression, **fields)
    return error.value.code, error.value.details["errmsg"]


@pytest.mark.parametrize("number, why", [
    ("1e-310", "Out of range"),
    ("-5e-324", "Out of range"),
    (Decimal128("1E-310"), "Conversion would overflow target type"),
])
def test_a_double_does_not_lose_digits_as_it_becomes_small(c, number, why):
    code, message = mistake_of(c, {"$toDouble": "$a"}, a=number)
    assert code == 241 and why in message
    smallest = "2.2250738585072013e-308"
    assert value_of(c, {"$toDouble": "$a"}, a=smallest) == 2.2250738585072014e-308


@pytest.mark.parametrize("to, text, why", [
    ("int", "18446744073709551615x", "Did not consume whole string."),
    ("int", "18446744073709551616x", "Overflow"),
    ("long", "-99999999999999999999e5", "Overflow"),
    ("decimal", "1E-6177", "Conversion from string to decimal would underflow"),
    ("decimal", "1E6145", "Conversion from string to decimal would overflow"),
])
def test_a_number_in_text_that_does_not_fit(c, to, text, why):
    code, message = mistake_of(c, {"$convert": {"input": "$a", "to": to}}, a=text)
    assert code == 241 and message.endswith(why)


def test_a_product_of_doubles_is_one_from_its_first_number_on(c):
    three = {"$multiply": ["$a", "$b", "$last"]}
    a, b, last = 10, -9007199254740993, -1.0589806023626326e53
    assert value_of(c, three, a=a, b=Int64(b), last=last) == float(a) * float(b) * last != float(a * b) * last
    product = value_of(c, three, a=Int64(2**53 + 1), b=Int64(3), last=Decimal128("0.1"))
    assert product == Decimal128("2702159776422297.9")
    assert value_of(c, three, a=Int64(2**62), b=Int64(2), last=Int64(0)) == 0.0


def test_the_argument_of_a_logarithm_is_checked_before_its_base(c):
    logarithm = {"$log": ["$a", "$b"]}
    code, message = mistake_of(c, logarithm, a=Decimal128("1E-324"), b=1)
    assert code == 28758 and message.endswith("$log's argument must be a positive number, but is 0")
    assert mistake_of(c, logarithm, a=1e308, b=Decimal128("1"))[0] == 28759


@pytest.mark.parametrize("unit, most", [
    ("second", 18446744073743999),
    ("minute", 307445734562399),
    ("hour", 5124095576039),
    ("day", 213503982334),
    ("week", 30500568904),
    ("month", 7019309015),
    ("quarter", 2339769671),
    ("year", 584942417),
])
def test_the_largest_amount_that_is_added_to_a_date(c, unit, most):
    add = {"$dateAdd": {"startDate": "$a", "unit": unit, "amount": "$b"}}
    start = datetime.datetime(2020, 1, 1)
    for amount in (most, -most):
        assert mistake_of(c, add, a=start, b=Int64(amount))[0] == 5166406
    assert mistake_of(c, add, a=start, b=Int64(most + 1))[0] == 5976500


def test_a_date_moves_across_the_range_of_dates(c):
    add = {"$dateAdd": {"startDate": "$a", "unit": "second", "amount": "$b"}}
    start, seconds = -2**63 + 2**40, 18446744073709551 - 2**31
    moved = value_of(c, add, a=DatetimeMS(start), b=Int64(seconds))
    # Before 1970 a fraction of a second is lost.
    assert moved == DatetimeMS(start + seconds * 1000 - 1000)


def decimal(high, low):
    """A decimal by its bits, as no text gives it."""
    return Decimal128.from_bid(low.to_bytes(8, "little") + high.to_bytes(8, "little"))


@pytest.mark.parametrize("operator, high, expected", [
    # A zero and an infinity that are not encoded as usual.
    ("$abs", 0xEC10000000000000, 0x6C10000000000000),
    ("$abs", 0xFA00000000000000, 0x7A00000000000000),
    # A NaN with a sign and a payload, and one that asks for an exception.
    ("$abs", 0xFC00000000000000, 0x7C00000000000000),
    ("$abs", 0xFE00000000000000, 0x7E00000000000000),
    ("$trunc", 0xFE00000000000000, 0xFC00000000000000),
    ("$round", 0xFE00000000000000, 0xFC00000000000000),
    ("$floor", 0xFE00000000000000, 0xFC00000000000000),
    ("$ceil", 0x7E00000000000000, 0x7C00000000000000),
    ("$floor", 0x7C00000000000000, 0x7C00000000000000),
])
def test_odd_encodings_of_decimals(c, operator, high, expected):
    assert value_of(c, {operator: "$n"}, n=decimal(high, 5)).bid == decimal(expected, 5).bid


def test_a_decimal_that_signals_is_too_large_for_a_double(c):
    text = "Conversion would overflow target type in $convert with no onError value: NaN"
    code, message = mistake_of(c, {"$toDouble": "$n"}, n=decimal(0x7E00000000000000, 0))
    assert (code, message.rpartition(" :: caused by :: ")[2]) == (241, text)
