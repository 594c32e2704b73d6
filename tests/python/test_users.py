"""Users and roles: the commands that change and show them."""
import pytest
from pymongo.errors import OperationFailure


@pytest.fixture
def db(db):
    yield db
    db.command("dropAllUsersFromDatabase", 1)
    db.command("dropAllRolesFromDatabase", 1)


def code_of(db, *args, **kwargs):
    with pytest.raises(OperationFailure) as caught:
        db.command(*args, **kwargs)
    return caught.value.code


def user(db, name, **options):
    users = db.command("usersInfo", name, **options)["users"]
    assert len(users) <= 1
    return users[0] if users else None


def role(db, name, **options):
    roles = db.command("rolesInfo", name, **options)["roles"]
    assert len(roles) <= 1
    return roles[0] if roles else None


def find_on(db, collection="c"):
    return {"resource": {"db": db.name, "collection": collection}, "actions": ["find"]}


def test_a_user_is_created_shown_and_dropped(db):
    db.command("createUser", "ada", pwd="secret", roles=["read", {"role": "readWrite", "db": "other"}],
               customData={"team": 1})
    shown = user(db, "ada")
    assert list(shown) == ["_id", "userId", "user", "db", "customData", "roles", "mechanisms"]
    assert shown["_id"] == db.name + ".ada"
    assert sorted(r["role"] + "@" + r["db"] for r in shown["roles"]) == sorted(["readWrite@other", "read@" + db.name])
    assert shown["mechanisms"] == ["SCRAM-SHA-1", "SCRAM-SHA-256"]
    assert "customData" not in user(db, "ada", showCustomData=False)
    assert user(db, "nobody") is None
    assert code_of(db, "createUser", "ada", pwd="x", roles=[]) == 51003
    assert db.client.admin.system.users.find_one({"_id": shown["_id"]})["user"] == "ada"
    db.command("dropUser", "ada")
    assert code_of(db, "dropUser", "ada") == 11


def test_credentials_are_keys_not_passwords(db):
    db.command("createUser", "ada", pwd="secret", roles=[])
    db.command("createUser", "bob", pwd="secret", roles=[], mechanisms=["SCRAM-SHA-256"])
    ada, bob = (user(db, name, showCredentials=True)["credentials"] for name in ("ada", "bob"))
    assert ada["SCRAM-SHA-1"]["iterationCount"] == 10000
    assert ada["SCRAM-SHA-256"]["iterationCount"] == 15000
    assert list(ada["SCRAM-SHA-1"]) == ["iterationCount", "salt", "storedKey", "serverKey"]
    assert list(bob) == ["SCRAM-SHA-256"]
    # The same password has other keys for another user.
    assert ada["SCRAM-SHA-256"]["salt"] != bob["SCRAM-SHA-256"]["salt"]
    assert ada["SCRAM-SHA-256"]["storedKey"] != bob["SCRAM-SHA-256"]["storedKey"]
    assert "secret" not in repr(list(db.client.admin.system.users.find()))


def test_the_ways_to_ask_for_users(db):
    for name in ("zoe", "ada"):
        db.command("createUser", name, pwd="p", roles=["read"], customData={"name": name})
    names = lambda *args, **kwargs: [u["user"] for u in db.command("usersInfo", *args, **kwargs)["users"]]
    assert names(1) == ["ada", "zoe"]
    assert names(["zoe", "ada", "nobody"]) == ["ada", "zoe"]
    assert names({"user": "zoe", "db": db.name}) == ["zoe"]
    assert set(names({"forAllDBs": True})) >= {"ada", "zoe"}
    assert names(1, filter={"customData.name": "zoe"}) == ["zoe"]
    assert names(1, filter={"mechanisms": "SCRAM-SHA-1"}) == ["ada", "zoe"]
    assert code_of(db, "usersInfo", 1, showPrivileges=True) == 20
    assert code_of(db, "usersInfo", []) == 2
    assert code_of(db, "usersInfo", 5) == 2
    details = user(db, "zoe", showPrivileges=True)
    assert details["inheritedRoles"] == [{"role": "read", "db": db.name}]
    resources = sorted(p["resource"]["collection"] for p in details["inheritedPrivileges"])
    assert resources == ["", "system.js"]
    assert "find" in details["inheritedPrivileges"][0]["actions"]
    assert details["inheritedAuthenticationRestrictions"] == []


def test_a_user_is_changed(db):
    db.command("createUser", "ada", pwd="p", roles=[], authenticationRestrictions=[{"clientSource": ["127.0.0.1"]}])
    before = user(db, "ada", showCredentials=True)["credentials"]
    db.command("updateUser", "ada", pwd="q", roles=["dbAdmin"], customData={"a": 1})
    assert user(db, "ada", showCredentials=True)["credentials"] != before
    assert user(db, "ada")["roles"] == [{"role": "dbAdmin", "db": db.name}]
    db.command("grantRolesToUser", "ada", roles=["read"])
    assert {r["role"] for r in user(db, "ada")["roles"]} == {"dbAdmin", "read"}
    db.command("revokeRolesFromUser", "ada", roles=["dbAdmin"])
    assert [r["role"] for r in user(db, "ada")["roles"]] == ["read"]
    db.command("updateUser", "ada", mechanisms=["SCRAM-SHA-1"], authenticationRestrictions=[])
    assert user(db, "ada")["mechanisms"] == ["SCRAM-SHA-1"]
    assert user(db, "ada", showAuthenticationRestrictions=True)["authenticationRestrictions"] == []
    assert code_of(db, "updateUser", "ada", mechanisms=["SCRAM-SHA-256"]) == 2
    assert code_of(db, "updateUser", "ada") == 2
    assert code_of(db, "updateUser", "nobody", pwd="p") == 11
    assert code_of(db, "grantRolesToUser", "ada", roles=[]) == 2
    assert code_of(db, "grantRolesToUser", "ada", roles=["nope"]) == 31


@pytest.mark.parametrize("code, options", [
    (31, {"roles": ["nope"]}),
    (31, {"roles": ["root"]}),
    (2, {"roles": [5]}),
    (2, {"roles": [{"role": "read"}]}),
    (40414, {"roles": KeyError}),
    (10065, {"roles": None}),
    (2, {"pwd": KeyError}),
    (14, {"pwd": 5}),
    (50687, {"pwd": ""}),
    (50692, {"pwd": "\u0007"}),
    (2, {"mechanisms": []}),
    (2, {"mechanisms": ["NOPE"]}),
    (2, {"digestPassword": False}),
    (14, {"customData": 5}),
    (40415, {"nope": 1}),
    (40415, {"authenticationRestrictions": [{"nope": 1}]}),
    (162, {"authenticationRestrictions": [{}]}),
    (2, {"authenticationRestrictions": [{"clientSource": ["127.0.0.1/33"]}]}),
])
def test_what_is_no_user_is_refused(db, code, options):
    fields = {"pwd": "p", "roles": [], **options}
    fields = {name: value for name, value in fields.items() if value is not KeyError}
    assert code_of(db, "createUser", "ada", **fields) == code
    assert user(db, "ada") is None


def test_users_are_of_their_database(db):
    assert code_of(db.client.local, "createUser", "ada", pwd="p", roles=[]) == 2
    assert code_of(db.client["$external"], "createUser", "ada", pwd="p", roles=[]) == 2
    db.command("createUser", "ada", pwd="p", roles=[])
    db.command("createUser", "bob", pwd="p", roles=[])
    other = db.client[db.name + "_b"]
    other.command("createUser", "ada", pwd="p", roles=[])
    assert db.command("dropAllUsersFromDatabase", 1)["n"] == 2
    assert db.command("dropAllUsersFromDatabase", 1)["n"] == 0
    assert other.command("dropAllUsersFromDatabase", 1)["n"] == 1


def test_a_role_is_created_shown_and_dropped(db):
    db.command("createRole", "reader", privileges=[find_on(db), find_on(db)], roles=[])
    db.command("createRole", "clerk", privileges=[], roles=["reader", "read"])
    assert role(db, "reader") == {"_id": db.name + ".reader", "role": "reader", "db": db.name, "roles": [],
                                  "inheritedRoles": [], "isBuiltin": False}
    clerk = role(db, "clerk", showPrivileges=True)
    assert clerk["privileges"] == []
    assert {r["role"] for r in clerk["inheritedRoles"]} == {"reader", "read"}
    assert find_on(db) in clerk["inheritedPrivileges"]
    db.command("createUser", "ada", pwd="p", roles=["clerk", "reader"])
    assert {r["role"] for r in user(db, "ada", showPrivileges=True)["inheritedRoles"]} == {"clerk", "reader", "read"}
    assert code_of(db, "createRole", "clerk", privileges=[], roles=[]) == 51002
    # Whoever had it has it no longer.
    db.command("dropRole", "reader")
    assert [r["role"] for r in role(db, "clerk")["roles"]] == ["read"]
    assert [r["role"] for r in user(db, "ada")["roles"]] == ["clerk"]
    assert code_of(db, "dropRole", "reader") == 31
    assert code_of(db, "dropRole", "read") == 2
    assert db.command("dropAllRolesFromDatabase", 1)["n"] == 1


def test_a_role_is_changed(db):
    db.command("createRole", "r", privileges=[], roles=[])
    insert = {"resource": find_on(db)["resource"], "actions": ["insert"]}
    privileges = lambda: role(db, "r", showPrivileges=True)["privileges"]
    db.command("grantPrivilegesToRole", "r", privileges=[find_on(db)])
    db.command("grantPrivilegesToRole", "r", privileges=[insert])
    assert privileges() == [{"resource": insert["resource"], "actions": ["find", "insert"]}]
    db.command("revokePrivilegesFromRole", "r", privileges=[find_on(db)])
    assert privileges() == [insert]
    db.command("revokePrivilegesFromRole", "r", privileges=[insert])
    assert privileges() == []
    db.command("grantRolesToRole", "r", roles=["read"])
    db.command("createRole", "q", privileges=[], roles=["r"])
    assert code_of(db, "grantRolesToRole", "r", roles=["q"]) == 49
    assert code_of(db, "grantRolesToRole", "r", roles=["r"]) == 49
    db.command("revokeRolesFromRole", "r", roles=["read"])
    db.command("updateRole", "r", roles=["dbAdmin"], privileges=[find_on(db)])
    assert role(db, "r")["roles"] == [{"role": "dbAdmin", "db": db.name}]
    assert privileges() == [find_on(db)]
    assert code_of(db, "updateRole", "r") == 2
    assert code_of(db, "updateRole", "nope", roles=[]) == 31
    assert code_of(db, "grantPrivilegesToRole", "read", privileges=[find_on(db)]) == 2


@pytest.mark.parametrize("code, privilege", [
    (9, {}),
    (9, {"actions": ["find"]}),
    (9, {"resource": {"db": "X"}, "actions": ["find"]}),
    (9, {"resource": {"cluster": False}, "actions": ["find"]}),
    (2, {"resource": {"db": "X", "collection": "c"}, "actions": ["nope"]}),
    (2, {"resource": {"db": 5, "collection": "c"}, "actions": ["find"]}),
    (49, {"resource": {"db": "other", "collection": "c"}, "actions": ["find"]}),
    (49, {"resource": {"cluster": True}, "actions": ["serverStatus"]}),
])
def test_what_is_no_privilege_of_a_database_is_refused(db, code, privilege):
    resource = privilege.get("resource", {})
    if resource.get("db") == "X":
        privilege = {**privilege, "resource": {**resource, "db": db.name}}
    assert code_of(db, "createRole", "r", privileges=[privilege], roles=[]) == code


def test_built_in_roles(db):
    of = lambda database: {r["role"] for r in database.command("rolesInfo", 1, showBuiltinRoles=True)["roles"]
                           if r["isBuiltin"]}
    everywhere = {"read", "readWrite", "dbAdmin", "dbOwner", "userAdmin", "enableSharding"}
    assert of(db) == everywhere
    assert of(db.client.admin) > everywhere | {"root", "clusterAdmin", "backup", "restore", "__system"}
    actions = lambda name: {action for p in role(db.client.admin, name, showPrivileges=True)["privileges"]
                            for action in p["actions"]}
    assert "insert" in actions("readWriteAnyDatabase") and "insert" not in actions("readAnyDatabase")
    assert actions("clusterMonitor") < actions("clusterAdmin") < actions("root")
    assert actions("__system") == {"anyAction"}
    assert code_of(db, "createRole", "read", privileges=[], roles=[]) == 2
    assert role(db, "root") is None
    fragment = db.command("rolesInfo", ["read", "nope"], showPrivileges="asUserFragment")["userFragment"]
    assert list(fragment) == ["roles", "inheritedRoles", "inheritedPrivileges"]


def test_users_outlive_their_database_and_the_cache_can_be_told(db):
    db.c.insert_one({})
    db.command("createUser", "ada", pwd="p", roles=[])
    db.client.drop_database(db.name)
    assert user(db, "ada")["user"] == "ada"
    assert db.client.admin.command("invalidateUserCache")["ok"] == 1
    for name in ("system.users", "system.version"):
        with pytest.raises(OperationFailure):
            db.client.admin.command("drop", name)
    with pytest.raises(OperationFailure):
        db.client.admin.command("renameCollection", "admin.system.users", to="admin.other")


def test_no_password_is_logged_or_shown(db):
    db.client.admin.command("profile", 0, slowms=-1)
    try:
        db.command("createUser", "ada", pwd="hush-hush", roles=[])
        db.command("updateUser", "ada", pwd="hush-hush-2")
    finally:
        db.client.admin.command("profile", 0, slowms=100)
    log = db.client.admin.command("getLog", "global")["log"]
    assert any("createUser" in line for line in log)
    assert not any("hush-hush" in line for line in log)
