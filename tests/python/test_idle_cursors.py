"""`{ $currentOp: { idleCursors: true } }` shows the cursors that no command reads. The replies are mongod's."""
import datetime


def idle_cursors(client, ns, **options):
    shown = client.admin.aggregate([{"$currentOp": {"idleCursors": True, **options}}])
    return {one["cursor"]["cursorId"]: one for one in shown if one["type"] == "idleCursor" and one["ns"] == ns}


def test_idle_cursors_are_shown(client, c):
    c.insert_many([{"_id": i} for i in range(100)])
    ns = c.full_name
    found = c.find({"_id": {"$gte": 0}}, batch_size=5, no_cursor_timeout=True)
    for _ in range(7):
        next(found)
    piped = c.aggregate([{"$match": {"_id": {"$gt": 3}}}], batchSize=3)
    next(piped)
    shown = idle_cursors(client, ns, allUsers=True)
    assert set(shown) == {found.cursor_id, piped.cursor_id}
    first, second = shown[found.cursor_id], shown[piped.cursor_id]
    assert list(first)[:3] == ["type", "host", "ns"] and "lsid" in first
    assert first["planSummary"] == second["planSummary"] == "IXSCAN { _id: 1 }"
    told = first["cursor"]
    assert list(told) == ["cursorId", "createdDate", "lastAccessDate", "nDocsReturned", "nBatchesReturned", "noCursorTimeout",
                          "tailable", "awaitData", "originatingCommand"]
    assert (told["nDocsReturned"], told["nBatchesReturned"]) == (10, 2)
    assert (told["noCursorTimeout"], told["tailable"], told["awaitData"]) == (True, False, False)
    assert told["originatingCommand"]["find"] == c.name
    age = told["lastAccessDate"] - told["createdDate"]
    assert datetime.timedelta(0) <= age < datetime.timedelta(minutes=1)
    told = second["cursor"]
    assert (told["nDocsReturned"], told["nBatchesReturned"], told["noCursorTimeout"]) == (3, 1, False)
    assert told["originatingCommand"]["pipeline"] == [{"$match": {"_id": {"$gt": 3}}}]
    found.close()
    assert set(idle_cursors(client, ns)) == {piped.cursor_id}
    piped.close()
    assert idle_cursors(client, ns) == {}
    assert not [one for one in client.admin.aggregate([{"$currentOp": {}}]) if one["type"] == "idleCursor"]
