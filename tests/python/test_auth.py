"""How a client proves who it is: SCRAM, and what the connection then is."""
import base64
import hashlib
import hmac

import pymongo
import pytest
from bson import Binary
from pymongo.errors import OperationFailure
from raw import Raw


@pytest.fixture
def db(db):
    yield db
    db.command("dropAllUsersFromDatabase", 1)
    db.command("dropAllRolesFromDatabase", 1)


def sign_in(db, user, password, mechanism=None, **options):
    """A client that authenticates as this user, whose first command has succeeded."""
    host = db.client.address
    if mechanism:
        options["authMechanism"] = mechanism
    client = pymongo.MongoClient(*host, username=user, password=password, authSource=db.name, maxPoolSize=1,
                                 directConnection=True, **options)
    try:
        client.admin.command("ping")
    except BaseException:
        client.close()
        raise
    return client


def status(client, **options):
    return client.admin.command("connectionStatus", 1, **options)["authInfo"]


def who(client):
    return [(u["user"], u["db"]) for u in status(client)["authenticatedUsers"]]


def refused(db, *args, **kwargs):
    with pytest.raises(OperationFailure) as caught:
        sign_in(db, *args, **kwargs).close()
    return caught.value.code


@pytest.mark.parametrize("mechanism", [None, "SCRAM-SHA-1", "SCRAM-SHA-256"])
@pytest.mark.parametrize("user, password", [("ada", "secret"), ("us,e=r", "p\u00e4ssw\u00f6rd"), ("ada.b@c", "a b/c:d")])
def test_a_driver_signs_in(db, mechanism, user, password):
    db.command("createUser", user, pwd=password, roles=["read"])
    with sign_in(db, user, password, mechanism) as client:
        assert who(client) == [(user, db.name)]
        assert status(client)["authenticatedUserRoles"] == [{"role": "read", "db": db.name}]
    assert refused(db, user, password + "x", mechanism) == 18
    assert refused(db, "nobody", password, mechanism) == 18


def test_an_old_driver_signs_in(db):
    """By OP_QUERY, in which drivers from before MongoDB 3.6 send what they need until they know the server, and nothing else."""
    db.command("createUser", "old", pwd="p", roles=[], mechanisms=["SCRAM-SHA-256"])
    with Raw(db.client.address[1]) as raw:
        assert raw.query("admin", isMaster=1)["ismaster"] and raw.query("admin", buildInfo=1)["versionArray"][0] >= 6
        first = "n=old,r=abcdefgh"
        begun = raw.query(db.name, saslStart=1, mechanism="SCRAM-SHA-256", payload=b"n,," + first.encode())
        challenge = begun["payload"].decode()
        parts = dict(part.split("=", 1) for part in challenge.split(","))
        salted = hashlib.pbkdf2_hmac("sha256", b"p", base64.b64decode(parts["s"]), int(parts["i"]))
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        without_proof = "c=biws,r=" + parts["r"]
        signed = hmac.digest(hashlib.sha256(client_key).digest(), ",".join([first, challenge, without_proof]).encode(), "sha256")
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signed))).decode()
        payload = ("%s,p=%s" % (without_proof, proof)).encode()
        while not begun["done"]:
            begun = raw.query(db.name, saslContinue=1, conversationId=begun["conversationId"], payload=payload)
            assert begun["ok"] == 1, begun
            payload = b""
        assert raw.command("admin", connectionStatus=1)["authInfo"]["authenticatedUsers"] == [{"user": "old", "db": db.name}]
        assert raw.query("admin", _isSelf=1)["id"] == raw.command("admin", hello=1)["topologyVersion"]["processId"]
        for name in ("ping", "connectionStatus", "find", "getnonce"):
            reply = raw.query(db.name, **{name: 1})
            assert reply["code"] == 352 and reply["errmsg"].startswith("Unsupported OP_QUERY command: %s. " % name), reply


def test_a_user_has_the_mechanisms_it_was_given(db):
    db.command("createUser", "one", pwd="p", roles=[], mechanisms=["SCRAM-SHA-1"])
    db.command("createUser", "two", pwd="p", roles=[], mechanisms=["SCRAM-SHA-256"])
    mechanisms = lambda user: db.client.admin.command("hello", saslSupportedMechs=db.name + "." + user).get(
        "saslSupportedMechs")
    assert mechanisms("one") == ["SCRAM-SHA-1"]
    assert mechanisms("two") == ["SCRAM-SHA-256"]
    assert mechanisms("nobody") is None
    # Without a mechanism a driver asks which there are.
    sign_in(db, "one", "p").close()
    sign_in(db, "two", "p").close()
    assert refused(db, "one", "p", "SCRAM-SHA-256") == 18
    assert refused(db, "two", "p", "SCRAM-SHA-1") == 18


def test_passwords_are_prepared(db):
    db.command("createUser", "ada", pwd="I\u00adX", roles=[])
    sign_in(db, "ada", "IX", "SCRAM-SHA-256").close()
    sign_in(db, "ada", "\u2168", "SCRAM-SHA-256").close()
    # SCRAM-SHA-1 takes a password as it is.
    assert refused(db, "ada", "IX", "SCRAM-SHA-1") == 18


def test_a_password_and_a_mechanism_can_be_taken_away(db):
    db.command("createUser", "ada", pwd="p", roles=[])
    db.command("updateUser", "ada", pwd="q")
    assert refused(db, "ada", "p") == 18
    sign_in(db, "ada", "q", "SCRAM-SHA-256").close()
    db.command("updateUser", "ada", mechanisms=["SCRAM-SHA-1"])
    assert refused(db, "ada", "q", "SCRAM-SHA-256") == 18
    sign_in(db, "ada", "q").close()


def test_a_connection_follows_its_user(db):
    db.command("createRole", "clerk", privileges=[], roles=["read"])
    db.command("createUser", "ada", pwd="p", roles=["clerk"])
    with sign_in(db, "ada", "p") as client:
        roles = lambda: {r["role"] for r in status(client)["authenticatedUserRoles"]}
        assert roles() == {"clerk", "read"}
        actions = status(client, showPrivileges=True)["authenticatedUserPrivileges"][0]["actions"]
        assert "find" in actions and "insert" not in actions
        db.command("grantRolesToUser", "ada", roles=["dbAdmin"])
        assert roles() == {"clerk", "read", "dbAdmin"}
        db.command("dropRole", "clerk")
        assert roles() == {"dbAdmin"}
        db.command("dropUser", "ada")
        assert who(client) == []
        # Another of the same name is another.
        db.command("createUser", "ada", pwd="p", roles=[])
        assert who(client) == []


def test_logout(db):
    db.command("createUser", "ada", pwd="p", roles=[])
    with sign_in(db, "ada", "p") as client:
        client[db.name + "_other"].command("logout")
        assert who(client) == [("ada", db.name)]
        client[db.name].command("logout")
        assert who(client) == []


def test_restrictions_say_from_where(db):
    create = lambda name, restrictions: db.command("createUser", name, pwd="p", roles=[],
                                                   authenticationRestrictions=restrictions)
    create("near", [{"clientSource": ["10.0.0.0/8"]}, {"clientSource": ["127.0.0.0/8"], "serverAddress": ["127.0.0.1"]}])
    create("far", [{"clientSource": ["10.0.0.0/8"]}])
    db.command("createRole", "abroad", privileges=[], roles=[],
               authenticationRestrictions=[{"clientSource": ["10.0.0.0/8"]}])
    db.command("createUser", "granted", pwd="p", roles=["abroad"])
    assert refused(db, "far", "p") == 18
    assert refused(db, "granted", "p") == 18
    with sign_in(db, "near", "p") as client:
        assert who(client) == [("near", db.name)]
        db.command("updateUser", "near", authenticationRestrictions=[{"clientSource": ["10.0.0.1"]}])
        assert who(client) == []


class Conversation:
    """SCRAM-SHA-256 step by step, for what no driver sends."""

    def __init__(self, db, user="ada", first="n,,", **options):
        self.db, self.user, self.bare = db, user, "n=%s,r=abcdefgh" % user
        # One connection, or the steps would go to several.
        self.client = pymongo.MongoClient(*db.client.address, maxPoolSize=1, directConnection=True)
        self.command = self.client[db.name].command
        self.first = self.command("saslStart", 1, mechanism="SCRAM-SHA-256",
                                  payload=Binary((first + self.bare).encode()), options=options)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.close()

    def proof(self, password="p", nonce=None):
        server = bytes(self.first["payload"]).decode()
        fields = dict(part.split("=", 1) for part in server.split(","))
        salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
        key = hmac.new(salted, b"Client Key", "sha256").digest()
        bare = "c=biws,r=" + (nonce or fields["r"])
        signature = hmac.new(hashlib.sha256(key).digest(), ",".join((self.bare, server, bare)).encode(), "sha256").digest()
        return bare + ",p=" + base64.b64encode(bytes(a ^ b for a, b in zip(key, signature))).decode()

    def go_on(self, payload, number=1):
        return self.command("saslContinue", 1, conversationId=number, payload=Binary(payload.encode()))


def test_the_empty_exchange_at_the_end(db):
    db.command("createUser", "ada", pwd="p", roles=[])
    with Conversation(db) as talk:
        assert talk.first["conversationId"] == 1 and talk.first["done"] is False
        assert talk.go_on(talk.proof())["done"] is False
        assert who(talk.client) == []
        assert talk.go_on("")["done"] is True
        assert who(talk.client) == [("ada", db.name)]
    with Conversation(db, skipEmptyExchange=True) as talk:
        assert talk.go_on(talk.proof())["done"] is True
        assert who(talk.client) == [("ada", db.name)]


@pytest.mark.parametrize("code, wrong", [
    (18, lambda talk: talk.go_on(talk.proof("wrong"))),
    (18, lambda talk: talk.go_on(talk.proof(nonce="abcdefgh"))),
    (18, lambda talk: talk.go_on("")),
    (18, lambda talk: talk.go_on("c=biws,r=x,p=AAAA")),
    (17, lambda talk: talk.go_on(talk.proof(), number=2)),
])
def test_a_failure_ends_the_conversation(db, code, wrong):
    db.command("createUser", "ada", pwd="p", roles=[])
    with Conversation(db, skipEmptyExchange=True) as talk:
        with pytest.raises(OperationFailure) as caught:
            wrong(talk)
        assert caught.value.code == code
        assert who(talk.client) == []
        with pytest.raises(OperationFailure) as caught:
            talk.go_on(talk.proof())
        assert caught.value.code == 17


@pytest.mark.parametrize("code, fields", [
    (334, {"mechanism": "NOPE"}),
    (334, {"mechanism": "MONGODB-X509"}),
    (18, {"payload": Binary(b"x")}),
    (18, {"payload": Binary(b"p=tls-unique,,n=ada,r=abcdefgh")}),
    (18, {"payload": Binary(b"n,a=bob,n=ada,r=abcdefgh")}),
    (10270, {"payload": "!!"}),
    (2, {"payload": 5}),
    (2, {"payload": Binary(b"x", 5)}),
    (2, {"options": {"skipEmptyExchange": 1}}),
])
def test_what_begins_no_conversation(db, code, fields):
    db.command("createUser", "ada", pwd="p", roles=[])
    fields = {"mechanism": "SCRAM-SHA-256", "payload": Binary(b"n,,n=ada,r=abcdefgh"), **fields}
    with pytest.raises(OperationFailure) as caught:
        db.command("saslStart", 1, **fields)
    assert caught.value.code == code


def sign_in_on(talk, user):
    """Signs another user in on the connection of a conversation."""
    other = Conversation.__new__(Conversation)
    other.__dict__.update(talk.__dict__, bare="n=%s,r=abcdefgh" % user)
    other.first = other.command("saslStart", 1, mechanism="SCRAM-SHA-256",
                                payload=Binary(b"n,," + other.bare.encode()), options={"skipEmptyExchange": True})
    return other.go_on(other.proof())["done"]


def test_a_connection_is_one_user_s(db):
    for name in ("ada", "bob"):
        db.command("createUser", name, pwd="p", roles=[])
    with Conversation(db, skipEmptyExchange=True) as talk:
        talk.go_on(talk.proof())
        with pytest.raises(OperationFailure) as caught:
            sign_in_on(talk, "bob")
        assert caught.value.code == 5626702
        assert who(talk.client) == [("ada", db.name)]
        # The same again is no other.
        assert sign_in_on(talk, "ada") and who(talk.client) == [("ada", db.name)]


def drop(db):
    db.command("dropUser", "ada")


def drop_all(db):
    db.command("dropAllUsersFromDatabase", 1)
    db.command("createUser", "bob", pwd="p", roles=[])


def make_anew(db):
    drop(db)
    db.command("createUser", "ada", pwd="p", roles=[])


@pytest.mark.parametrize("change", [drop, drop_all, make_anew])
def test_a_user_who_is_gone_leaves_the_connection_to_others(db, change):
    for name in ("ada", "bob"):
        db.command("createUser", name, pwd="p", roles=[])
    with Conversation(db, skipEmptyExchange=True) as talk:
        talk.go_on(talk.proof())
        change(db)
        assert sign_in_on(talk, "bob") and who(talk.client) == [("bob", db.name)]


def test_a_user_who_has_changed_keeps_the_connection(db):
    for name in ("ada", "bob"):
        db.command("createUser", name, pwd="p", roles=[{"role": "read", "db": db.name}])
    with Conversation(db, skipEmptyExchange=True) as talk:
        talk.go_on(talk.proof())
        db.command("updateUser", "ada", pwd="other", roles=[])
        with pytest.raises(OperationFailure) as caught:
            sign_in_on(talk, "bob")
        assert caught.value.code == 5626702 and who(talk.client) == [("ada", db.name)]


def test_no_proof_is_logged(db):
    db.command("createUser", "ada", pwd="p", roles=[])
    db.client.admin.command("profile", 0, slowms=-1)
    try:
        with Conversation(db, skipEmptyExchange=True) as talk:
            proof = talk.proof()
            talk.go_on(proof)
        sign_in(db, "ada", "p").close()
    finally:
        db.client.admin.command("profile", 0, slowms=100)
    log = "\n".join(db.client.admin.command("getLog", "global")["log"])
    assert "saslContinue" in log
    assert proof not in log and base64.b64encode(proof.encode()).decode() not in log
