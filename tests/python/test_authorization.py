"""Access control: who may do what, on a server that asks."""
import hashlib
import time

import bson
import pymongo
import pytest
import server
from bson import Int64
from pymongo.errors import OperationFailure

ROOT = {"username": "root", "password": "root"}


@pytest.fixture(scope="module")
def own():
    """A server with access control and one user, who may do everything."""
    # mongod stores the sessions that it lists each time this has passed; Marula lists those that
    # it has.
    with server.Server("--auth", "--setParameter", "logicalSessionRefreshMillis=100") as own:
        with pymongo.MongoClient(own.uri) as client:
            # Before there is a user, a client on this machine may make one.
            with pytest.raises(OperationFailure) as caught:
                client.test.c.find_one()
            assert caught.value.code == 13
            with pytest.raises(OperationFailure):
                client.test.command("createUser", "root", pwd="root", roles=[])
            client.admin.command("createUser", "root", pwd="root", roles=["root"])
            with pytest.raises(OperationFailure, match="requires authentication"):
                client.admin.command("createUser", "second", pwd="p", roles=["root"])
        yield own
        assert own.process.poll() is None, "the server ended during the tests:\n" + own.tail()


@pytest.fixture
def root(own):
    with pymongo.MongoClient(own.uri, **ROOT) as client:
        yield client
        for name in client.list_database_names():
            if name not in ("admin", "config", "local"):
                client.drop_database(name)
        for name in ("d", "e"):
            client[name].command("dropAllUsersFromDatabase", 1)
            client[name].command("dropAllRolesFromDatabase", 1)


@pytest.fixture
def user(own, root):
    """Makes users of the database `d` and connects as them."""
    clients = []

    def make(roles=(), privileges=(), name="ada", **options):
        roles = list(roles)
        if privileges:
            root.d.command("createRole", name + "'s", privileges=list(privileges), roles=[])
            roles.append(name + "'s")
        root.d.command("createUser", name, pwd="p", roles=roles, mechanisms=["SCRAM-SHA-256"], **options)
        return connect(name)

    def connect(name="ada"):
        client = pymongo.MongoClient(own.uri, username=name, password="p", authSource="d", maxPoolSize=1)
        clients.append(client)
        return client

    make.connect = connect
    root.d.c.insert_many([{"_id": i} for i in range(10)])
    root.d.e.insert_one({"_id": 1})
    yield make
    for client in clients:
        client.close()


def on(collection, *actions, db="d"):
    return {"resource": {"db": db, "collection": collection}, "actions": list(actions)}


def refused(db, *args, **kwargs):
    """Whether a command is refused for want of a privilege."""
    answer = db.command(*args, check=False, **kwargs)
    return answer.get("code") == 13


def test_strangers_may_only_come_in(own):
    with pymongo.MongoClient(own.uri) as client:
        for command in ("hello", "ping", "buildInfo", "connectionStatus", "listCommands", "whatsmyuri"):
            assert client.admin.command(command)["ok"] == 1
        for command in ("listDatabases", "serverStatus", "usersInfo", "currentOp", "startSession", "getLog", "shutdown"):
            with pytest.raises(OperationFailure, match="command %s requires authentication" % command) as caught:
                client.admin.command(command)
            assert caught.value.code == 13
        # Clients that are not authenticated do not see errors in a request either.
        with pytest.raises(OperationFailure, match="requires authentication"):
            client.d.command("insert", "c", nope=1)
        with pytest.raises(OperationFailure, match="requires authentication"):
            client.d.command("find", "c", txnNumber=Int64(1), autocommit=False, startTransaction=True)


def test_a_refusal_tells_the_command_and_no_secret(user):
    client = user()
    with pytest.raises(OperationFailure) as caught:
        client.d.command("createUser", "bob", pwd="hush", roles=[])
    assert caught.value.code == 13
    message = caught.value.details["errmsg"]
    assert message.startswith('not authorized on d to execute command { createUser: "bob", pwd: "xxx", roles: []')


@pytest.mark.parametrize("role, may, may_not", [
    ("read", ["find", "count", "aggregate", "listCollections", "listIndexes", "dbStats"],
     ["insert", "update", "delete", "drop", "createUser", "out", "create", "validate"]),
    ("readWrite", ["find", "insert", "update", "delete", "create", "createIndexes", "drop", "out"],
     ["createUser", "validate", "profile", "collMod"]),
    ("dbAdmin", ["create", "drop", "validate", "profile", "collMod", "dbStats", "listCollections"],
     ["find", "insert", "update", "delete", "createUser", "out"]),
    ("userAdmin", ["createUser", "usersInfo"], ["find", "insert", "drop", "dbStats", "listCollections"]),
    ("dbOwner", ["find", "insert", "createUser", "drop", "profile", "out"], []),
])
def test_roles_of_a_database(user, role, may, may_not):
    commands = {
        "find": {"find": "c"}, "count": {"count": "c"}, "aggregate": {"aggregate": "c", "pipeline": [], "cursor": {}},
        "out": {"aggregate": "c", "pipeline": [{"$out": "o"}], "cursor": {}},
        "listCollections": {"listCollections": 1}, "listIndexes": {"listIndexes": "c"}, "dbStats": {"dbStats": 1},
        "insert": {"insert": "c", "documents": [{}]},
        "update": {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"a": 1}}}]},
        "delete": {"delete": "c", "deletes": [{"q": {"_id": 77}, "limit": 1}]}, "drop": {"drop": "nope"},
        "create": {"create": "n"}, "createIndexes": {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a_1"}]},
        "validate": {"validate": "c"}, "profile": {"profile": 0}, "collMod": {"collMod": "c", "validationLevel": "strict"},
        "createUser": {"createUser": "bob", "pwd": "p", "roles": [], "mechanisms": ["SCRAM-SHA-256"]},
        "usersInfo": {"usersInfo": 1},
    }
    client = user([role])
    for name in may:
        assert not refused(client.d, commands[name]), name
    for name in may_not:
        assert refused(client.d, commands[name]), name
    for name in commands:
        assert refused(client.other, commands[name]), name


def test_a_privilege_covers_what_it_names(user):
    d = user(privileges=[on("c", "find")]).d
    assert not refused(d, {"find": "c"})
    assert refused(d, {"find": "e"})
    assert refused(d, {"insert": "c", "documents": [{}]})
    # Every collection that a pipeline reads or writes counts.
    lookup = {"$lookup": {"from": "e", "as": "x", "pipeline": []}}
    for pipeline in ([lookup], [{"$facet": {"a": [lookup]}}], [{"$unionWith": "e"}],
                     [{"$unionWith": {"coll": "c", "pipeline": [lookup]}}],
                     [{"$graphLookup": {"from": "e", "startWith": "$a", "connectFromField": "a",
                                        "connectToField": "b", "as": "x"}}],
                     [{"$out": "o"}], [{"$merge": "c"}], [{"$merge": {"into": {"db": "f", "coll": "o"}}}],
                     [{"$merge": {"into": {"db": "", "coll": "o"}}}]):
        assert refused(d, {"aggregate": "c", "pipeline": pipeline, "cursor": {}}), pipeline
        assert refused(d, {"explain": {"aggregate": "c", "pipeline": pipeline, "cursor": {}}}), pipeline
    assert not refused(d, {"aggregate": "c", "pipeline": [{"$unionWith": "c"}], "cursor": {}})
    assert refused(d, {"aggregate": "c", "pipeline": [{"$collStats": {"count": {}}}], "cursor": {}})


def test_a_merge_into_a_database_without_a_name_is_into_its_own(user):
    pipeline = [{"$merge": {"into": {"db": "", "coll": "o"}}}]
    d = user(privileges=[on("c", "find"), on("o", "insert", "update")]).d
    assert not refused(d, {"aggregate": "c", "pipeline": pipeline, "cursor": {}})


def test_upserts_insert_and_validators_are_not_passed(user):
    d = user(privileges=[on("c", "find", "update")]).d
    change = {"q": {"_id": 1}, "u": {"$set": {"a": 1}}}
    assert not refused(d, {"update": "c", "updates": [change]})
    assert refused(d, {"update": "c", "updates": [change, {**change, "upsert": True}]})
    assert refused(d, {"update": "c", "updates": [change], "bypassDocumentValidation": True})
    assert not refused(d, {"findAndModify": "c", "query": {"_id": 1}, "update": {"$set": {"a": 2}}})
    assert refused(d, {"findAndModify": "c", "query": {"_id": 1}, "update": {"$set": {"a": 2}}, "upsert": True})
    assert refused(d, {"findAndModify": "c", "query": {"_id": 1}, "remove": True})


def test_what_is_the_server_s_own_is_named_or_refused(user, root):
    client = user([{"role": "readWriteAnyDatabase", "db": "admin"}])
    assert not refused(client.d, {"find": "c"})
    for db, collection in (("admin", "system.users"), ("admin", "system.version"), ("config", "system.sessions"),
                           ("local", "startup_log"), ("d", "system.views"), ("d", "system.profile")):
        assert refused(client[db], {"find": collection}), (db, collection)
    assert refused(client.admin, {"insert": "system.users", "documents": [{}]})
    assert refused(client.admin, {"drop": "system.users"})


def test_a_view_shows_what_its_maker_may_see(user, root):
    root.d.create_collection("v", viewOn="e", pipeline=[])
    d = user(privileges=[on("v", "find"), on("w", "find", "createCollection")]).d
    assert not refused(d, {"find": "v"})
    assert refused(d, {"find": "e"})
    assert refused(d, {"create": "w", "viewOn": "e", "pipeline": []})
    assert not refused(d, {"create": "w", "viewOn": "v", "pipeline": []})


def test_who_may_only_insert_makes_no_view(user, root):
    ada = user(privileges=[on("", "insert")])
    assert refused(ada.d, "create", "v", viewOn="c", pipeline=[])
    ada.d.command("create", "made")
    # A user who could not read the view may create one over data that it may not read.
    bob = user(privileges=[on("", "createCollection")], name="bob")
    bob.d.command("create", "v", viewOn="c", pipeline=[])
    assert refused(bob.d, "find", "v")
    root.d.drop_collection("v")
    eve = user(privileges=[on("v", "createCollection", "find")], name="eve")
    assert refused(eve.d, "create", "v", viewOn="c", pipeline=[])


def test_a_uuid_in_place_of_a_name_needs_its_own_privilege(user, root):
    [info] = root.d.list_collections(filter={"name": "c"})
    own = info["info"]["uuid"]
    other = type(own)(bytes(16), 4)
    ada = user(privileges=[on("c", "find")])
    for uuid in (own, other):
        assert refused(ada.d, "find", uuid) and refused(ada.d, "count", uuid)
        assert refused(ada.e, "find", uuid)
    by_uuid = {"resource": {"cluster": True}, "actions": ["useUUID"]}
    root.admin.command("createRole", "by-uuid", privileges=[by_uuid], roles=[])
    bob = user(privileges=[on("c", "find")], roles=[{"role": "by-uuid", "db": "admin"}], name="bob")
    assert len(bob.d.command("find", own)["cursor"]["firstBatch"]) == 10
    assert refused(bob.d, "listIndexes", own)
    for db, uuid in ((bob.d, other), (bob.e, own)):
        with pytest.raises(OperationFailure) as caught:
            db.command("find", uuid)
        assert caught.value.code == 26
    root.admin.command("dropRole", "by-uuid")


def test_one_may_list_the_sessions_of_oneself(user):
    ada = user()
    with ada.start_session() as session:
        ada.d.command("ping", session=session)
        for name in ({}, {"users": []}, {"users": [{"user": "ada", "db": "d"}]}):
            listed = list(ada.admin.aggregate([{"$listLocalSessions": name}], session=session))
            assert session.session_id["id"] in [one["_id"]["id"] for one in listed]
    for name in ({"allUsers": True}, {"users": [{"user": "root", "db": "admin"}]}):
        assert refused(ada.admin, "aggregate", 1, pipeline=[{"$listLocalSessions": name}], cursor={})


def test_one_may_list_the_stored_sessions_of_oneself(user):
    ada, bob = user(), user(name="bob")

    def listed(spec):
        found = ada.config["system.sessions"].aggregate([{"$listSessions": spec}], session=own_session)
        return [one["_id"] for one in found]

    with ada.start_session() as own_session, bob.start_session() as other:
        ada.d.command("ping", session=own_session)
        bob.d.command("ping", session=other)
        own_id, other_id = own_session.session_id["id"], other.session_id["id"]
        until = time.monotonic() + 20
        while own_id not in [one["id"] for one in listed({})]:
            assert time.monotonic() < until, "the session is not listed"
            time.sleep(0.02)
        uid = hashlib.sha256(b"ada@d").digest()
        for spec in ({}, {"users": []}, {"allUsers": False}, {"users": [{"user": "ada", "db": "d"}]}):
            assert own_id in [one["id"] for one in listed(spec)]
            assert other_id not in [one["id"] for one in listed(spec)]
            assert {one["uid"] for one in listed(spec)} == {uid}
    bob_s = {"user": "bob", "db": "d"}
    for spec in ({"allUsers": True}, {"users": [bob_s]}, {"users": [{"user": "ada", "db": "d"}, bob_s]}):
        assert refused(ada.config, "aggregate", "system.sessions", pipeline=[{"$listSessions": spec}], cursor={}), spec
    both = [{"$listSessions": {"allUsers": True, "users": [bob_s]}}]
    assert ada.config.command("aggregate", "system.sessions", pipeline=both, cursor={}, check=False)["code"] == 12
    # After another stage it would read the collection as any other.
    for pipeline in ([], [{"$match": {}}, {"$listSessions": {}}]):
        assert refused(ada.config, "aggregate", "system.sessions", pipeline=pipeline, cursor={}), pipeline
    assert refused(ada.config, "find", "system.sessions")


def test_who_may_list_sessions_lists_those_of_others(user):
    ada, monitor = user(), user([{"role": "clusterMonitor", "db": "admin"}], name="carl")
    with ada.start_session() as session:
        ada.d.command("ping", session=session)

        def is_listed(spec):
            found = monitor.config["system.sessions"].aggregate([{"$listSessions": spec}])
            return session.session_id["id"] in [one["_id"]["id"] for one in found]

        until = time.monotonic() + 20
        while not is_listed({"allUsers": True}):
            assert time.monotonic() < until, "the session is not listed"
            time.sleep(0.02)
        assert is_listed({"users": [{"user": "ada", "db": "d"}]})
        # Without a name the sessions are one's own, also where one may list others.
        for spec in ({"users": [{"user": "carl", "db": "d"}]}, {}, {"users": []}, {"allUsers": False}):
            assert not is_listed(spec), spec


def test_nobody_acts_for_others_by_a_pattern(root):
    for pattern in ({"users": []}, {"roles": []}, {"users": [{"user": "a", "db": "b"}]}):
        assert refused(root.admin, "killAllSessionsByPattern", [pattern])


def test_a_client_before_the_first_user_may_only_make_one():
    with server.Server("--auth") as own, pymongo.MongoClient(own.uri) as client:
        admin = client.admin
        for command in ({"killOp": 1, "op": 1}, {"currentOp": 1}, {"killAllSessions": []}, {"startSession": 1},
                        {"endSessions": []}, {"refreshSessions": []}, {"serverStatus": 1}, {"getLog": "global"},
                        {"aggregate": 1, "pipeline": [{"$listLocalSessions": {}}], "cursor": {}},
                        {"aggregate": 1, "pipeline": [{"$currentOp": {"allUsers": True}}], "cursor": {}}):
            assert refused(admin, command), command
        own_operations = admin.command({"aggregate": 1, "pipeline": [{"$currentOp": {}}], "cursor": {}})
        assert own_operations["cursor"]["firstBatch"] == []
        assert client.list_database_names() == []
        assert refused(admin, {"listCollections": 1, "nameOnly": True, "authorizedCollections": True})
        admin.command("createUser", "root", pwd="root", roles=["root"])


def test_the_warning_of_open_access_is_of_open_access(root):
    told = "Access control is not enabled for the database"

    def warnings(client):
        return "".join(client.admin.command("getLog", "startupWarnings")["log"])

    assert told not in warnings(root)
    with server.Server() as unguarded, pymongo.MongoClient(unguarded.uri) as client:
        assert told in warnings(client)


def test_access_control_is_not_switched_on_and_off_at_once():
    with pytest.raises(RuntimeError, match="noauth"):
        server.Server("--auth", "--noauth")


def test_lists_show_what_may_be_touched(user, root):
    client = user(privileges=[on("c", "find")])
    assert client.list_database_names() == ["d"]
    assert client.d.list_collection_names(authorizedCollections=True) == ["c"]
    assert refused(client.d, {"listCollections": 1})
    assert refused(client.admin, {"listDatabases": 1, "authorizedDatabases": False})
    assert {"admin", "d"} <= set(root.list_database_names())
    assert set(root.d.list_collection_names()) == {"c", "e"}


def test_cursors_are_their_user_s(user, root):
    ada = user(["read"])
    bob = user(["read"], name="bob")
    cursor = ada.d.command("find", "c", batchSize=2)["cursor"]["id"]
    more = {"getMore": Int64(cursor), "collection": "c", "batchSize": 2}
    assert bob.d.command(more, check=False)["ok"] == 0
    assert refused(bob.d, {"killCursors": "c", "cursors": [Int64(cursor)]})
    with ada.start_session() as session:
        cursor = ada.d.command("find", "c", batchSize=2, session=session)["cursor"]["id"]
        more = {"getMore": Int64(cursor), "collection": "c", "batchSize": 2}
        assert len(ada.d.command(more, session=session)["cursor"]["nextBatch"]) == 2
        root.d.command("revokeRolesFromUser", "ada", roles=["read"])
        assert ada.d.command(more, session=session, check=False)["code"] == 13
        assert not refused(ada.d, {"killCursors": "c", "cursors": [Int64(cursor)]})


def test_changes_take_effect_at_once(user, root):
    client = user(["read"])
    assert not refused(client.d, {"find": "c"})
    root.d.command("grantRolesToUser", "ada", roles=["readWrite"])
    assert not refused(client.d, {"insert": "c", "documents": [{}]})
    root.d.command("revokeRolesFromUser", "ada", roles=["readWrite", "read"])
    assert refused(client.d, {"find": "c"})
    root.d.command("createRole", "r", privileges=[on("c", "find")], roles=[])
    root.d.command("grantRolesToUser", "ada", roles=["r"])
    assert not refused(client.d, {"find": "c"})
    root.d.command("updateRole", "r", privileges=[])
    assert refused(client.d, {"find": "c"})
    # Also when the documents are changed by hand; root may not, but who may restore may.
    root.admin.command("createUser", "restorer", pwd="p", roles=["restore"])
    try:
        with pymongo.MongoClient(root.address[0], root.address[1], username="restorer", password="p") as restorer:
            restorer.admin["system.users"].update_one({"_id": "d.ada"},
                                                      {"$set": {"roles": [{"role": "read", "db": "d"}]}})
    finally:
        root.admin.command("dropUser", "restorer")
    assert not refused(client.d, {"find": "c"})
    root.d.command("dropUser", "ada")
    with pytest.raises(OperationFailure, match="requires authentication"):
        client.d.command("find", "c")


def test_one_may_change_and_see_oneself(user, root):
    client = user(privileges=[on("", "changeOwnPassword")])
    assert client.d.command("usersInfo", "ada")["users"][0]["user"] == "ada"
    assert refused(client.d, {"usersInfo": 1})
    assert refused(client.d, {"usersInfo": "bob"})
    assert refused(client.d, {"rolesInfo": 1})
    assert client.d.command("rolesInfo", "ada's")["roles"]
    assert not refused(client.d, {"updateUser": "ada", "pwd": "p"})
    assert refused(client.d, {"updateUser": "ada", "customData": {}})
    assert refused(client.d, {"updateUser": "ada", "roles": ["dbOwner"]})
    user(name="bob")
    assert refused(client.d, {"updateUser": "bob", "pwd": "p"})
    assert refused(client.d, {"updateUser": "bob", "mechanisms": ["SCRAM-SHA-256"]})


def test_roles_are_given_by_who_may_grant_them(user):
    client = user(["userAdmin"])
    create = lambda name, roles: {"createUser": name, "pwd": "p", "roles": roles, "mechanisms": ["SCRAM-SHA-256"]}
    assert not refused(client.d, create("bob", ["read"]))
    assert refused(client.d, create("eve", [{"role": "root", "db": "admin"}]))
    assert refused(client.d, create("eve", [{"role": "read", "db": "e"}]))
    assert refused(client.d, {"grantRolesToUser": "ada", "roles": [{"role": "root", "db": "admin"}]})
    assert not refused(client.d, {"grantRolesToUser": "ada", "roles": ["readWrite"]})
    assert refused(client.admin, {"createRole": "r", "privileges": [], "roles": []})


def test_roles_of_the_cluster(user):
    client = user([{"role": "clusterMonitor", "db": "admin"}])
    for command in ("serverStatus", "currentOp", "hostInfo", "getCmdLineOpts", "listDatabases"):
        assert not refused(client.admin, {command: 1}), command
    assert refused(client.admin, {"setParameter": 1, "quiet": False})
    assert refused(client.admin, {"shutdown": 1})
    assert refused(client.admin, {"killAllSessions": []})
    assert refused(client.d, {"find": "c"})


def test_operations_are_seen_and_ended_by_whose_they_are(user):
    client = user()
    assert refused(client.admin, {"currentOp": 1})
    seen = client.admin.command("currentOp", **{"$ownOps": True})["inprog"]
    assert [op["command"].get("currentOp") for op in seen] == [1]
    assert refused(client.admin, {"killOp": 1, "op": 999999})
    assert not refused(client.admin, {"aggregate": 1, "pipeline": [{"$currentOp": {}}], "cursor": {}})
    assert refused(client.admin, {"aggregate": 1, "pipeline": [{"$currentOp": {"allUsers": True}}], "cursor": {}})


def test_the_configuration_file_asks_for_it_too(tmp_path):
    path = tmp_path / "m.conf"
    path.write_text("security:\n  authorization: enabled\n")
    with server.Server("--config", str(path)) as own, pymongo.MongoClient(own.uri) as client:
        with pytest.raises(OperationFailure) as caught:
            client.test.c.find_one()
        assert caught.value.code == 13
        assert client.admin.command("hello")["ok"] == 1
    with server.Server("--config", str(path), "--setParameter", "enableLocalhostAuthBypass=false") as own, \
            pymongo.MongoClient(own.uri) as client:
        with pytest.raises(OperationFailure, match="requires authentication"):
            client.admin.command("createUser", "root", pwd="root", roles=["root"])


def test_a_pipeline_knows_the_users_roles(root, user):
    version = lambda to: root.admin.command("setFeatureCompatibilityVersion", to, confirm=True)
    root.d.command("createRole", "reader", privileges=[], roles=["read"])
    ada = user(roles=["reader"])
    roles = [{"$limit": 1}, {"$project": {"_id": 0, "r": "$$USER_ROLES"}}]
    version("7.0")
    try:
        found = ada.d.c.aggregate(roles).next()["r"]
        assert sorted(found, key=lambda role: role["_id"]) == [
            {"_id": "d.read", "role": "read", "db": "d"},
            {"_id": "d.reader", "role": "reader", "db": "d"},
        ]
        named = {"$expr": {"$in": ["reader", "$$USER_ROLES.role"]}}
        assert ada.d.c.count_documents(named) == 10
        assert root.d.c.count_documents(named) == 0
    finally:
        version("6.0")
    with pytest.raises(OperationFailure, match="Use of undefined variable: USER_ROLES"):
        ada.d.c.aggregate(roles)


def test_stages_that_report_need_their_privilege_wherever_they_stand(user):
    reader = user(privileges=[on("c", "find")])
    able = user(privileges=[on("c", "find", "collStats", "indexStats", "planCacheRead")], name="bob")
    for stage in ({"$indexStats": {}}, {"$collStats": {"count": {}}}, {"$planCacheStats": {}}):
        for outer in (
            {"$unionWith": {"coll": "c", "pipeline": [stage]}},
            {"$lookup": {"from": "c", "pipeline": [stage], "as": "x"}},
            {"$facet": {"x": [stage]}},
        ):
            command = {"aggregate": "c", "pipeline": [outer], "cursor": {}}
            assert refused(reader.d, command), command
            assert not refused(able.d, command), command


def test_a_view_is_not_changed_by_halves(user, root):
    root.d.secret.insert_one({"_id": 1})
    rights = [on("v", "find", "createCollection", "collMod"), on("c", "find")]
    ada = user(privileges=rights)
    ada.d.command("create", "v", viewOn="c", pipeline=[])
    for client in (ada, root):
        for half in ({"pipeline": [{"$unionWith": "secret"}]}, {"viewOn": "secret"}):
            answer = client.d.command({"collMod": "v", **half}, check=False)
            assert answer["code"] == 72, answer
    assert refused(ada.d, {"collMod": "v", "viewOn": "c", "pipeline": [{"$unionWith": "secret"}]})
    assert ada.d.command("collMod", "v", viewOn="c", pipeline=[{"$limit": 1}])["ok"] == 1


def test_names_of_collections_tell_no_options(user, root):
    root.d.create_collection("capped", capped=True, size=4096)
    ada = user(["read"])
    listing = {"listCollections": 1, "nameOnly": True, "authorizedCollections": True}
    for filter, expected in (({"options.capped": True}, []), ({"name": "capped"}, ["capped"])):
        found = ada.d.command({**listing, "filter": filter})["cursor"]["firstBatch"]
        assert [one["name"] for one in found] == expected


def test_another_s_session_is_not_taken(user):
    ada = user(["read"])
    own = hashlib.sha256(b"ada@d").digest()
    for uid, code in ((own, None), (bytes(32), 13)):
        lsid = {"id": bson.Binary(bytes(16), 4), "uid": uid}
        answer = ada.admin.command({"endSessions": [lsid]}, check=False)
        assert answer.get("code") == code, answer


def test_a_stranger_learns_nothing_of_a_cursor(user):
    ada, bob = user(["read"]), user(["read"], name="bob")
    cursor = ada.d.command("find", "c", batchSize=1)["cursor"]["id"]
    answer = bob.d.command({"getMore": Int64(cursor), "collection": "other"}, check=False)
    assert answer["errmsg"] == "cursor id %d was not created by the authenticated user" % cursor


def test_malformed_restrictions_permit_nothing(user, root):
    user(["read"])
    root.admin["system.users"].update_one({"user": "ada"}, {"$set": {"authenticationRestrictions": 5}})
    with pytest.raises(OperationFailure) as caught:
        user.connect("ada").d.c.find_one()
    assert caught.value.code == 18


def test_databases_are_validated_by_those_who_may(user, root):
    ada = user(["dbAdmin"])
    check = {"validateDBMetadata": 1, "apiParameters": {"version": "1", "strict": True}}
    assert refused(ada.d, check)
    assert not refused(ada.d, {**check, "db": "d"})
    assert not refused(root.d, check)


def test_what_is_explained_hides_its_secrets(user, root):
    root.d.command("profile", 2)
    command = {"explain": {"createUser": "eve", "pwd": "hush", "roles": []}}
    assert "hush" not in str(root.d.command(command, check=False))
    ada = user(["read"])
    ada.d.c.find_one()
    assert refused(ada.d, {"insert": "c", "documents": [{}]})
    root.d.command("profile", 0)
    records = list(root.d["system.profile"].find())
    assert "hush" not in str(records)
    assert {record["user"] for record in records} == {"root@admin", "ada@d"}
    # A command that is refused is not recorded.
    assert not [record for record in records if record["op"] == "insert" and record["ns"] == "d.c"]


@pytest.mark.parametrize("drop", [False, True])
def test_a_restore_takes_over_users_and_roles(root, drop):
    credentials = {"SCRAM-SHA-256": {"iterationCount": 15000, "salt": "a" * 40, "storedKey": "b" * 44, "serverKey": "c" * 44}}

    def stored(of, name, db, **fields):
        common = {"_id": "%s.%s" % (db, name), of: name, "db": db, "roles": []}
        return {**common, **({"credentials": credentials} if of == "user" else {"privileges": []}), **fields}

    for db in ("d", "e"):
        root[db].command("createUser", "old", pwd="p", roles=["read"])
        root[db].command("createUser", "both", pwd="p", roles=["read"])
        root[db].command("createRole", "r", privileges=[], roles=["read"])
    temporary = {"users": root.admin.tempusers, "roles": root.admin.temproles}
    for collection in temporary.values():
        collection.drop()
    temporary["users"].insert_many([stored("user", "both", "d"), stored("user", "new", "d"), stored("user", "new", "e")])
    temporary["roles"].insert_many([stored("role", "r", "d", roles=[{"role": "readWrite", "db": "d"}])])
    command = {"_mergeAuthzCollections": 1, "tempUsersCollection": "admin.tempusers",
               "tempRolesCollection": "admin.temproles", "db": "d", "drop": drop}
    assert root.admin.command(command)["ok"] == 1

    def users(db):
        return {user["user"]: [role["role"] for role in user["roles"]] for user in root[db].command("usersInfo", 1)["users"]}

    kept = {"both": [], "new": []} if drop else {"old": ["read"], "both": ["read"], "new": []}
    assert users("d") == kept
    assert users("e") == {"old": ["read"], "both": ["read"]}
    role = root.d.command("rolesInfo", "r")["roles"][0]["roles"][0]["role"]
    assert role == ("readWrite" if drop else "read")
    for fields, code in (
        ({"tempUsersCollection": "", "tempRolesCollection": ""}, 2),
        ({"tempUsersCollection": "nowhere"}, 73),
        ({"drop": 1}, 14),
    ):
        assert root.admin.command({**command, **fields}, check=False)["code"] == code
    temporary["users"].insert_one({"_id": "x", "user": "x", "db": "d", "roles": []})
    assert root.admin.command(command, check=False)["code"] == 10065
    for collection in temporary.values():
        collection.drop()


def test_statements_that_are_refused_leave_the_transaction():
    with server.Server("--auth", "--replSet", "rs") as own:
        with pymongo.MongoClient(own.uri) as client:
            try:
                config = {"_id": "rs", "members": [{"_id": 0, "host": "127.0.0.1:%d" % own.port}]}
                client.admin.command("replSetInitiate", config)
            except OperationFailure as error:
                assert error.code in (23, 59), error
            while not client.admin.command("hello")["isWritablePrimary"]:
                time.sleep(0.05)
            client.admin.command("createUser", "root", pwd="root", roles=["root"])
        with pymongo.MongoClient(own.uri, **ROOT) as root:
            root.d.command("createUser", "ada", pwd="p", roles=["readWrite"])
            root.admin.command("createUser", "eve", pwd="p", roles=["read"])
            root.d.c.insert_one({"_id": 0})
        with pymongo.MongoClient(own.uri, username="ada", password="p", authSource="d") as ada:
            with ada.start_session() as session, session.start_transaction():
                ada.d.c.insert_one({"_id": 1}, session=session)
                with pytest.raises(OperationFailure) as caught:
                    ada.e.c.insert_one({"_id": 1}, session=session)
                assert caught.value.code == 13
            assert ada.d.c.count_documents({}) == 2
        # Changes of the whole cluster are not for those who may read one database.
        with pymongo.MongoClient(own.uri, username="eve", password="p", authSource="admin") as eve:
            stream = {"aggregate": 1, "pipeline": [{"$changeStream": {"allChangesForCluster": True}}], "cursor": {}}
            assert refused(eve.admin, stream)


@pytest.mark.parametrize("filter, code", [
    ({"$where": "true"}, 2), ({"$or": [{"$where": "true"}]}, 2), ({"$text": {"$search": "x"}}, 2), ({"a": {"$near": [0, 0]}}, 5626500),
])
def test_lists_are_not_filtered_by_searches(root, filter, code):
    for command in ({"listCollections": 1, "filter": filter}, {"usersInfo": 1, "filter": filter}):
        assert root.d.command(command, check=False)["code"] == code
    for command in ({"listDatabases": 1, "filter": filter}, {"currentOp": 1, **filter}):
        assert root.admin.command(command, check=False)["code"] == code
