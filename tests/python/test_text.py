"""Text search, as an application uses it: words in their languages, phrases, scores. The results are mongod 6.0's."""
import bson
import pytest
from bson.raw_bson import RawBSONDocument
from pymongo.errors import OperationFailure, WriteError

SCORE = {"$meta": "textScore"}


@pytest.fixture
def coffees(c):
    c.create_index([("t", "text")])
    c.insert_many([
        {"_id": 1, "t": "Coffee shop"}, {"_id": 2, "t": "the coffee shopping mall"}, {"_id": 3, "t": "Café au lait"},
        {"_id": 4, "t": ["coffee", "shop"]}, {"_id": 5, "t": "RUNNING Running running"},
    ])
    return c


def found(c, search, **options):
    text = {"$search": search, **options}
    return sorted(d["_id"] for d in c.find({"$text": text}, {"_id": 1}))


@pytest.mark.parametrize("search, options, expected", [
    ("coffees", {}, [1, 2, 4]),
    ("the", {}, []),
    ("-coffee", {}, []),
    ("coffee -shop", {}, []),
    ("coffee -mall", {}, [1, 4]),
    ('coffee "fee sho"', {}, [1, 2]),
    ('"coffee shop"', {}, [1, 2]),
    ('coffee -"the"', {}, [1, 4]),
    ("cafe", {}, [3]),
    ("CAFÉ", {}, [3]),
    ("cafe", {"$diacriticSensitive": True}, []),
    ("Coffee", {"$caseSensitive": True}, [1]),
    ("RUNNING", {"$caseSensitive": True}, [5]),
    ("run", {}, [5]),
    ("running", {"$language": "none"}, []),
])
def test_what_is_found(coffees, search, options, expected):
    assert found(coffees, search, **options) == expected


def test_scores_order_and_show(coffees):
    wanted = [(4, 2.1), (1, 1.5), (2, 1.3333333333333333)]
    cursor = coffees.find({"$text": {"$search": "coffee shop"}}, {"s": SCORE}).sort([("s", SCORE)])
    assert [(d["_id"], d["s"]) for d in cursor] == wanted
    stages = [{"$match": {"$text": {"$search": "coffee shop"}}}, {"$addFields": {"s": SCORE}}, {"$sort": {"s": -1}}]
    assert [(d["_id"], d["s"]) for d in coffees.aggregate(stages)] == wanted


def test_a_search_goes_on_over_batches(coffees):
    cursor = coffees.find({"$text": {"$search": "coffee"}}, {"s": SCORE}, batch_size=1)
    assert sorted(d["_id"] for d in cursor) == [1, 2, 4]


def test_weights_and_fields_beside(c):
    c.create_index([("p", 1), ("a", "text"), ("b", "text")], weights={"a": 10}, name="x")
    index = next(i for i in c.list_indexes() if i["name"] == "x")
    assert dict(index["key"]) == {"p": 1, "_fts": "text", "_ftsx": 1}
    assert (dict(index["weights"]), index["textIndexVersion"]) == ({"a": 10, "b": 1}, 3)
    c.insert_many([{"_id": 1, "p": 1, "a": "tea", "b": "milk"}, {"_id": 2, "p": 2, "a": "tea"}])
    one = {"$text": {"$search": "tea milk"}, "p": 1}
    assert list(c.find(one, {"_id": 1, "s": SCORE})) == [{"_id": 1, "s": 12.1}]
    with pytest.raises(OperationFailure) as error:
        list(c.find({"$text": {"$search": "tea"}}))
    assert error.value.code == 291
    with pytest.raises(WriteError) as error:
        c.insert_one({"p": [1], "a": "tea"})
    assert error.value.code == 201


def test_documents_in_their_languages(c):
    c.create_index([("t", "text")])
    c.insert_many([{"_id": 1, "t": "corriendo", "language": "spanish"}, {"_id": 2, "t": "the end", "language": "none"}])
    assert found(c, "correr", **{"$language": "spanish"}) == [1]
    assert found(c, "the", **{"$language": "none"}) == [2]
    for language, code in [("klingon", 17262), (5, 17261)]:
        with pytest.raises(WriteError) as error:
            c.insert_one({"t": "x", "language": language})
        assert error.value.code == code


def test_writes_find_by_text_and_keep_the_index_right(coffees):
    text = {"$text": {"$search": "coffee"}}
    assert coffees.update_many(text, {"$set": {"t": "tea"}}).modified_count == 3
    assert found(coffees, "coffee") == []
    assert coffees.delete_many({"$text": {"$search": "tea"}}).deleted_count == 3
    assert coffees.database.command("validate", coffees.name)["valid"]


@pytest.mark.parametrize("filter, code", [
    ({"$nor": [{"$text": {"$search": "x"}}]}, 2),
    ({"$and": [{"$text": {"$search": "x"}}, {"$text": {"$search": "y"}}]}, 2),
    ({"$or": [{"$text": {"$search": "x"}}, {"t": 1}]}, 291),
    ({"$text": {"$search": 5}}, 14),
    ({"$text": {}}, 4),
    ({"$text": {"$search": "x", "$language": "klingon"}}, 2),
])
def test_refusals(coffees, filter, code):
    with pytest.raises(OperationFailure) as error:
        list(coffees.find(filter))
    assert error.value.code == code


def test_without_an_index(c):
    c.insert_one({"t": "x"})
    with pytest.raises(OperationFailure) as error:
        list(c.find({"$text": {"$search": "x"}}))
    assert error.value.code == 27


def test_one_text_index_and_no_other_use_of_it(coffees):
    with pytest.raises(OperationFailure) as error:
        coffees.create_index([("p", 1), ("t", "text")])
    assert error.value.code == 67
    with pytest.raises(OperationFailure) as error:
        list(coffees.find({"$text": {"$search": "x"}}, hint="t_text"))
    assert error.value.code == 2
    with pytest.raises(OperationFailure) as error:
        list(coffees.find({}, {"s": SCORE}))
    assert error.value.code == 40218


def test_a_search_beside_other_branches_has_no_scores_to_sort_by(c):
    c.insert_one({"_id": 1, "s": "apple"})
    c.create_index([("s", "text")])
    either = {"$or": [{"$text": {"$search": "apple"}}, {"_id": 2}]}
    assert [doc["_id"] for doc in c.find(either)] == [1]
    with pytest.raises(OperationFailure) as refused:
        list(c.find(either).sort([("score", {"$meta": "textScore"})]))
    assert refused.value.code == 40218


@pytest.mark.parametrize("version, search, options, expected", [
    (1, "café", {}, [2]), (2, "café", {}, [2]), (3, "café", {}, [1, 2, 3]),
    (1, "CAFÉ", {}, [3]), (2, "CAFÉ", {}, [3]),
    (2, "CAFE", {}, [1]), (2, "cafe", {"$diacriticSensitive": True}, [1]), (2, "cafe", {"$caseSensitive": True}, [1]),
    (2, '"CAFÉ noir"', {}, [3]), (3, '"CAFÉ noir"', {}, [3]),
    (1, "tea", {}, []), (2, "tea", {}, []), (3, "tea", {}, [4]),
    (1, "running", {}, [5]), (2, "running", {"$language": "none"}, []), (1, "runs", {"$language": "eng"}, [5]),
])
def test_older_versions_know_ascii_letters(c, version, search, options, expected):
    c.create_index([("t", "text")], textIndexVersion=version)
    c.insert_many([
        {"_id": 1, "t": "cafe"}, {"_id": 2, "t": "café"}, {"_id": 3, "t": "CAFÉ noir"}, {"_id": 4, "t": "tea—time"},
        {"_id": 5, "t": "runs"},
    ])
    assert found(c, search, **options) == expected
    assert next(i for i in c.list_indexes() if "weights" in i)["textIndexVersion"] == version


def test_which_languages_a_version_knows(c):
    c.create_index([("t", "text")], textIndexVersion=2)
    with pytest.raises(OperationFailure) as error:
        found(c, "tea", **{"$language": "eng"})
    assert error.value.details["errmsg"] == 'unsupported language: "eng" for text index version 2'
    with pytest.raises(WriteError) as error:
        c.insert_one({"t": "tea", "language": "klingon"})
    assert error.value.code == 17262
    c.drop_indexes()
    c.create_index([("t", "text")], textIndexVersion=1, default_language="klingon")
    c.insert_many([{"_id": 1, "t": "runs", "language": "Klingon"}, {"_id": 2, "t": "runs", "language": "english"}])
    assert (found(c, "runs"), found(c, "run")) == ([1], [2])


def test_a_tab_does_not_let_a_minus_negate(coffees):
    assert found(coffees, "coffee\t-mall") == [1, 2, 4]
    assert found(coffees, "coffee\n-mall") == [1, 4]


def test_version_1_looks_for_texts_in_its_own_way(c):
    c.create_index([("a.b", "text")], textIndexVersion=1, language_override="$x", weights={"": 2})
    c.insert_many([
        {"_id": 1, "a": {"b": "runs dogs", "language": "none"}}, {"_id": 2, "a.b": "runs"}, {"_id": 3, "a": [{"b": "runs"}]},
    ])
    assert found(c, "run") == [1, 2]
    c.drop_indexes()
    c.create_index([("a.b", "text")], textIndexVersion=1, default_language="")
    # A document is matched as in any version: by the language next to the text, and not by a name
    # with a dot.
    assert found(c, "run -dog") == [1, 2]
    assert found(c, 'run "dogs"') == [1]


def test_what_is_not_searched_names_no_language(c):
    c.create_index([("a", "text"), ("b.c", "text")])
    c.insert_many([{"a": {"language": "klingon"}}, {"a": ["x", {"language": 5}]}, {"b": {"d": {"language": 5}}}])
    with pytest.raises(WriteError) as error:
        c.insert_one({"b": [{"language": "klingon"}]})
    assert error.value.code == 17262


def test_a_number_in_a_path_beside_the_texts_is_an_element_s_place(db):
    for name, path in (("a", "a.0"), ("b", "a.0.b")):
        db[name].create_index([(path, 1), ("words", "text")])
    lists = [[1, 2], [], [{"0": 1}], [{"0": [1]}], [None], [{"b": 1}], [{"b": 1}, {"b": 2}], [1, {"b": 1}]]
    for value in [*lists, 5, {"0": 1}, {"0": {"b": 1}}]:
        for name in "ab":
            db[name].insert_one({"a": value, "words": "w"})
    refused = [[[1]], [[]], [[{"b": 1}]], {"0": [1]}, {"0": [{"b": 1}]}]
    for name, values in (("a", refused), ("b", [*refused, [{"b": [1]}]])):
        for value in values:
            with pytest.raises(OperationFailure) as caught:
                db[name].insert_one({"a": value, "words": "w"})
            assert caught.value.code == 201, (name, value)
    found = {"$text": {"$search": "w"}}
    assert db.a.count_documents({"a.0": 1, **found}) == 3
    assert db.b.count_documents({"a.0.b": 1, **found}) == 3
    assert db.a.count_documents({"a.0": None, **found}) == 3


def test_a_projection_of_the_score_lets_branches_sort_by_it(c):
    c.create_index([("t", "text")])
    c.insert_many([{"_id": 1, "t": "cat dog"}, {"_id": 2, "t": "cat"}, {"_id": 3}, {"_id": 4, "t": "fish cat cat"}])
    search = {"$text": {"$search": "cat"}}
    branches = {"$or": [search, {"_id": 3}]}
    shown = [{"_id": 4, "q": 1.25}, {"_id": 2, "q": 1.1}, {"_id": 1, "q": 0.75}, {"_id": 3}]
    assert list(c.find(branches, {"_id": 1, "q": SCORE}).sort([("s", SCORE)])) == shown
    # Only the text index has scores: another index on _id is not used.
    both = {"$and": [branches, {"_id": {"$gt": 1}}]}
    assert list(c.find(both, {"_id": 1, "q": SCORE}).sort([("s", SCORE)])) == [shown[0], shown[1], shown[3]]
    assert [d["_id"] for d in c.find(both).sort([("s", SCORE)])] == [4, 2, 3]


def test_a_missing_index_is_the_first_mistake(db, c):
    for make in (lambda: None, lambda: c.insert_one({"a": 1})):
        make()
        search = {"$text": {"$search": "a"}}
        for filter in (search, {"$or": [search, search]}, {"$nor": [search]}):
            with pytest.raises(OperationFailure) as error:
                list(c.find(filter).sort([("$natural", 1)]))
            assert error.value.code == 27, filter


def test_a_search_in_another_language_asks_for_stop_words(c):
    """Of English documents: the index leaves "the" out, the documents have it."""
    c.create_index([("text", "text")])
    c.insert_many([{"_id": 1, "text": "the cafe"}, {"_id": 2, "text": "cafe"}, {"_id": 3, "text": "CAFE the"}])

    def found(search, **options):
        asked = {"$text": {"$search": search, "$language": "none", **options}}
        return sorted(doc["_id"] for doc in c.find(asked))

    assert found("cafe -the") == [2]
    assert found("cafe the", **{"$caseSensitive": True}) == [1, 2, 3]
    assert found("the") == []


def with_bytes(document, text):
    """The document with the bytes instead of its string of as many asterisks."""
    return RawBSONDocument(bson.encode(document).replace(b"*" * len(text), text))


@pytest.mark.parametrize("text, code", [
    (b"cat \xff", 28755), (b"\xed\xa0\x80", 28755), (b"\xc0\x80", 28755), (b"\xf5\x80\x80\x80", 28755),
    # Beyond Unicode, in a form that UTF-8 permits; a malformed character comes first.
    (b"cat \xf4\x90\x80\x80", 2), (b"\xf4\x90\x80\x80 \xff", 28755),
    # A NUL hides the bytes after it.
    (b"cat\0\xff", None), (b"cat \xef\xbf\xbf", None),
])
@pytest.mark.parametrize("version", [2, 3])
def test_version_3_takes_texts_in_utf_8(c, version, text, code):
    stars = "*" * len(text)
    document = with_bytes({"_id": 1, "t": stars}, text)
    update = with_bytes({"$set": {"t": stars}}, text)

    def code_of(run):
        try:
            run()
        except OperationFailure as failed:
            assert failed.details.get("errmsg", "").endswith("text contains invalid UTF-8")
            return failed.code

    def index():
        c.create_index([("t", "text")], textIndexVersion=version)

    expected = code if version == 3 else None
    c.insert_one({"_id": 2})
    index()
    assert code_of(lambda: c.insert_one(document)) == expected
    assert code_of(lambda: c.update_one({"_id": 2}, update)) == expected
    assert code_of(lambda: list(c.find(with_bytes({"$text": {"$search": stars}}, text), {"_id": 1}))) == expected
    c.drop()
    c.insert_one(document)
    assert code_of(index) == expected


@pytest.mark.parametrize("search, version, options, expected", [
    # The terms that are not negated end at the first NUL in one of them, those that are at one of
    # theirs.
    ("cat\0 x -dog", 3, {}, [1]), ("-dog\0 -cat bird cat", 3, {}, [1]),
    # No text that is read has a NUL. The older versions read a phrase up to its NUL if case does
    # not matter.
    ('cat "cat\0x"', 3, {}, []), ('cat "cat\0x"', 2, {}, [1, 2]), ('cat "cat\0x"', 2, {"$caseSensitive": True}, []),
])
def test_a_search_with_a_nul(c, search, version, options, expected):
    c.create_index([("t", "text")], textIndexVersion=version)
    c.insert_many([{"_id": 1, "t": "cat"}, {"_id": 2, "t": "cat dog"}, {"_id": 3, "t": "x"}])
    assert found(c, search, **options) == expected
