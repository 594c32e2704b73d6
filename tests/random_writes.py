"""Random writes of every kind, from a seed, and a fingerprint of all that they leave in a server."""
import datetime
import hashlib
import random

import bson
import pymongo
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo.errors import CollectionInvalid, OperationFailure

RAW = CodecOptions(document_class=RawBSONDocument)
DATABASES = ["one", "two"]
# Random writes meet many errors, each because of what earlier ones have left; these are of a
# broken server.
INTERNAL_ERRORS = {1, 8}
FAR = datetime.datetime(2100, 1, 1)


class RandomWrites:
    """Each call of `step` does one thing to a server; `did` has the names of what was done."""

    def __init__(self, client, seed):
        self.client, self.rng = client, random.Random(seed)
        self.did, self.number = [], 0
        self.kinds = [getattr(self, name) for name in sorted(dir(self)) if name.startswith("do_")]
        # What fills collections comes more often than what empties them.
        common = {"do_insert", "do_update", "do_delete", "do_transaction", "do_index", "do_create"}
        self.weights = [5 if kind.__name__ in common else 1 for kind in self.kinds]

    def step(self):
        kind, = self.rng.choices(self.kinds, self.weights)
        try:
            kind()
            self.did.append(kind.__name__[3:])
        except CollectionInvalid:
            # It is there already.
            self.did.append(kind.__name__[3:] + "!")
        except OperationFailure as error:
            details = error.details or {}
            # applyOps has this code, as in mongod, whatever the error of an operation is.
            own = set() if kind == self.do_apply_ops and "results" in details else {error.code}
            codes = own | {each["code"] for each in details.get("writeErrors", [])}
            assert not codes & INTERNAL_ERRORS, "%s: %r" % (kind.__name__, error)
            self.did.append(kind.__name__[3:] + "!")

    def db(self):
        return self.client[self.rng.choice(DATABASES)]

    def collections(self, type_="collection"):
        return [(name, info) for name in DATABASES for info in self.client[name].list_collections(filter={"type": type_})
                if not info["name"].startswith("system.")]

    def some(self):
        """A collection that may be written freely."""
        found = self.collections()
        if not found or self.rng.random() < 0.1:
            return self.db()["c%d" % self.rng.randrange(4)]
        name, info = self.rng.choice(found)
        return self.client[name][info["name"]]

    def id(self):
        return self.rng.randrange(60)

    def value(self):
        rng = self.rng
        return rng.choice([
            lambda: rng.randrange(100), lambda: rng.random(), lambda: "w%d word%d" % (rng.randrange(9), rng.randrange(9)),
            lambda: [rng.randrange(9) for _ in range(rng.randrange(5))], lambda: None, lambda: {"x": rng.randrange(5)},
            lambda: bson.Decimal128("1.%d" % rng.randrange(99)), lambda: bson.Int64(rng.getrandbits(60)),
            lambda: rng.randbytes(rng.choice((10, 1000, 40000)))])()

    def point(self):
        return {"type": "Point", "coordinates": [self.rng.uniform(-90, 90), self.rng.uniform(-80, 80)]}

    def document(self):
        doc = {field: self.value() for field in self.rng.sample("abcdefg", self.rng.randrange(1, 5))}
        if self.rng.random() < 0.5:
            doc["place"] = self.point()
        if self.rng.random() < 0.3:
            doc["until"] = FAR + datetime.timedelta(seconds=self.id())
        if self.rng.random() < 0.02:
            doc["large"] = self.rng.randbytes(self.rng.choice((300_000, 3_000_000)))
        elif self.rng.random() < 0.1:
            # Its changes are stored as such.
            doc["large"] = self.rng.randbytes(self.rng.choice((5_000, 40_000)))
        return doc

    def do_insert(self):
        docs = [{"_id": self.number + n, **self.document()} for n in range(self.rng.randrange(1, 30))]
        self.number += len(docs)
        for doc in docs:
            if self.rng.random() < 0.3:
                doc["_id"] = self.id()
        self.some().insert_many(docs, ordered=self.rng.random() < 0.5)

    def update(self):
        rng, field = self.rng, self.rng.choice("abcdefg")
        return rng.choice([
            {"$set": {field: self.value()}}, {"$unset": {field: 1}}, {"$inc": {"n": rng.randrange(5)}},
            {"$push": {"list": {"$each": [1, 2, rng.randrange(9)], "$slice": -5, "$sort": 1}}}, {"$pull": {"list": 2}},
            {"$addToSet": {"set": rng.randrange(9)}}, {"$rename": {field: "renamed"}}, {"$mul": {"m": 2}},
            {"$max": {"top": rng.randrange(99)}}, {"$bit": {"bits": {"xor": 5}}}, {"$pop": {"list": -1}},
            {"$currentDate": {"when": True}}, {"$setOnInsert": {"born": 1}, "$set": {"z": 1}},
            [{"$set": {"sum": {"$add": [{"$ifNull": ["$n", 0]}, 1]}}}, {"$unset": field}]])

    def filter(self):
        return self.rng.choice([{}, {"_id": self.id()}, {"_id": {"$lt": self.id()}}, {"n": {"$exists": True}},
                                {self.rng.choice("abcdefg"): {"$gt": 5}}])

    def do_update(self):
        c, rng = self.some(), self.rng
        form = rng.randrange(4)
        if form == 0:
            c.update_one(self.filter(), self.update(), upsert=rng.random() < 0.3)
        elif form == 1:
            c.update_many(self.filter(), self.update())
        elif form == 2:
            c.replace_one({"_id": self.id()}, self.document(), upsert=rng.random() < 0.5)
        else:
            c.bulk_write([pymongo.UpdateOne(self.filter(), self.update()), pymongo.DeleteOne({"_id": self.id()}),
                          pymongo.InsertOne(self.document()), pymongo.UpdateMany(self.filter(), self.update())])

    def do_array_filters(self):
        self.some().update_many({"list": {"$exists": True}}, {"$set": {"list.$[e]": 7}}, array_filters=[{"e": {"$lt": 3}}])

    def do_find_and_modify(self):
        c = self.some()
        self.rng.choice([lambda: c.find_one_and_update(self.filter(), self.update()),
                         lambda: c.find_one_and_delete(self.filter()),
                         lambda: c.find_one_and_replace({"_id": self.id()}, self.document(), upsert=True)])()

    def do_delete(self):
        c = self.some()
        self.rng.choice([lambda: c.delete_one(self.filter()), lambda: c.delete_many({"_id": {"$lt": self.id() // 2}}),
                         lambda: c.delete_many({"n": {"$gt": 3}})])()

    def do_transaction(self):
        is_aborted = self.rng.random() < 0.3
        with self.client.start_session() as session:
            session.start_transaction()
            try:
                for name in DATABASES:
                    for _ in range(self.rng.randrange(1, 3)):
                        c = self.client[name]["c%d" % self.rng.randrange(4)]
                        c.insert_one({"_id": bson.ObjectId(self.rng.randbytes(12)), **self.document()}, session=session)
                        c.update_many({"_id": {"$lt": 9}}, self.update(), session=session)
                        c.delete_one({"_id": self.id()}, session=session)
            except OperationFailure:
                session.abort_transaction()
                raise
            session.abort_transaction() if is_aborted else session.commit_transaction()

    def do_create(self):
        rng, db = self.rng, self.db()
        name = "c%d" % rng.randrange(4)
        rng.choice([
            lambda: db.create_collection(name),
            lambda: db.create_collection("capped%d" % rng.randrange(2), capped=True, size=20_000, max=50),
            lambda: db.command("create", "clustered%d" % rng.randrange(2),
                               clusteredIndex={"key": {"_id": 1}, "unique": True}),
            lambda: db.create_collection("validated", validator={"a": {"$type": "number"}}, validationLevel="moderate"),
            lambda: db.create_collection("collated", collation={"locale": "de", "strength": 2}),
            lambda: db.create_collection("images", changeStreamPreAndPostImages={"enabled": True}),
            lambda: db.command("create", "view%d" % rng.randrange(3), viewOn=name, pipeline=[{"$match": {"n": 1}}]),
            lambda: db.create_collection("series", timeseries={"timeField": "t", "metaField": "m"},
                                         expireAfterSeconds=10 ** 9)])()

    def do_series(self):
        found = self.collections("timeseries")
        if found:
            name, info = self.rng.choice(found)
            start = datetime.datetime(2026, 1, 1)
            self.client[name][info["name"]].insert_many([
                {"t": start + datetime.timedelta(minutes=self.rng.randrange(5000)), "m": self.rng.randrange(3),
                 "v": self.rng.random()} for _ in range(20)])

    def do_index(self):
        rng, field, c = self.rng, self.rng.choice("abcdefg"), self.some()
        keys, options = rng.choice([
            ([(field, 1)], {}), ([(field, 1), ("n", -1)], {}), ([(field, "hashed")], {}), ([(field, "text")], {}),
            ([("place", "2dsphere")], {}), ([("$**", 1)], {}), ([("$**", 1)], {"wildcardProjection": {"a": 1}}),
            ([("n", 1)], {"partialFilterExpression": {"n": {"$gt": 2}}}), ([("until", 1)], {"expireAfterSeconds": 100}),
            ([(field, 1)], {"unique": True, "sparse": True}), ([(field, -1)], {"hidden": True}),
            ([("born", 1)], {"unique": True, "partialFilterExpression": {"born": {"$gt": 1}}}),
            ([("list", 1), (field, 1)], {"sparse": True, "name": "named"}),
            ([(field, 1)], {"collation": {"locale": "fr", "strength": 1}, "name": "collated"})])
        c.create_index(keys, **options)

    def do_drop_index(self):
        c = self.some()
        names = [index["name"] for index in c.list_indexes() if index["name"] != "_id_" and not index.get("clustered")]
        if names:
            c.drop_index(self.rng.choice(names)) if self.rng.random() < 0.8 else c.drop_indexes()

    def do_coll_mod(self):
        c = self.some()
        indexes = [index["name"] for index in c.list_indexes()]
        index = self.rng.choice(indexes or ["_id_"])
        change = self.rng.choice([
            {"index": {"name": index, "hidden": self.rng.random() < 0.5}},
            {"index": {"name": index, "expireAfterSeconds": self.rng.randrange(10 ** 6)}},
            {"validator": {"b": {"$ne": self.id()}}, "validationAction": self.rng.choice(("warn", "error"))},
            {"changeStreamPreAndPostImages": {"enabled": self.rng.random() < 0.5}}])
        c.database.command("collMod", c.name, **change)

    def do_drop(self):
        self.some().drop()

    def do_drop_view(self):
        found = self.collections("view") + self.collections("timeseries")
        if found:
            name, info = self.rng.choice(found)
            self.client[name].drop_collection(info["name"])

    def do_drop_database(self):
        if self.rng.random() < 0.3:
            self.client.drop_database(self.rng.choice(DATABASES))

    def do_rename(self):
        source = self.some()
        to = "%s.c%d" % (self.rng.choice(DATABASES), self.rng.randrange(4))
        self.client.admin.command("renameCollection", source.full_name, to=to, dropTarget=self.rng.random() < 0.7)

    def do_out(self):
        to = self.rng.choice(["c0", {"db": self.rng.choice(DATABASES), "coll": "out"}])
        self.some().aggregate([{"$match": {"_id": {"$lt": 50}}}, {"$out": to}])

    def do_merge(self):
        self.some().aggregate([{"$set": {"merged": self.id()}}, {"$merge": {
            "into": "c%d" % self.rng.randrange(4), "whenMatched": self.rng.choice(("merge", "replace", "keepExisting"))}}])

    def do_apply_ops(self):
        ns = self.some().full_name
        self.client.admin.command("applyOps", [
            {"op": "i", "ns": ns, "o": {"_id": self.id(), "applied": self.number}}, {"op": "d", "ns": ns, "o": {"_id": self.id()}}])

    def do_convert_to_capped(self):
        c = self.some()
        c.database.command("convertToCapped", c.name, size=100_000)

    def do_capped_many(self):
        for name, info in self.collections():
            if info["options"].get("capped"):
                self.client[name][info["name"]].insert_many([{"n": n, "x": b"x" * 300} for n in range(60)])

    def do_user(self):
        rng, db = self.rng, self.client[self.rng.choice(["admin", *DATABASES])]
        name = "user%d" % rng.randrange(4)
        rng.choice([lambda: db.command("createUser", name, pwd="p", roles=["read"]), lambda: db.command("dropUser", name),
                    lambda: db.command("updateUser", name, customData={"n": self.number}),
                    lambda: db.command("grantRolesToUser", name, roles=["readWrite"])])()

    def do_role(self):
        rng, db = self.rng, self.client[self.rng.choice(DATABASES)]
        name = "role%d" % rng.randrange(3)
        rng.choice([lambda: db.command("dropRole", name), lambda: db.command("createRole", name, roles=["read"], privileges=[
            {"resource": {"db": db.name, "collection": "c0"}, "actions": ["find", "insert"]}]),
            lambda: db.command("grantRolesToRole", name, roles=["dbAdmin"])])()

    def do_large(self):
        """As much as leaves the write-ahead log for files of its own."""
        if self.rng.random() < 0.5:
            c = self.db()["c%d" % self.rng.randrange(4)]
            c.insert_many([{"_id": bson.ObjectId(self.rng.randbytes(12)), "x": self.rng.randbytes(2000), "n": n}
                           for n in range(1500)])


def fingerprint(client):
    """All that clients see of a server: collections with options, indexes, documents in their order, counts, views, users,
    roles. A difference between two of them shows where it is."""
    found = {}
    for name in [*DATABASES, "admin"]:
        for info in client[name].list_collections():
            place = "%s.%s" % (name, info["name"])
            found[place] = repr(info)
            c = client[name].get_collection(info["name"], codec_options=RAW)
            if info["type"] == "view":
                continue
            digest = hashlib.sha256()
            count = 0
            for doc in c.find().sort("$natural", 1):
                digest.update(doc.raw)
                count += 1
            found[place + " documents"] = "%d %s" % (count, digest.hexdigest())
            if info["type"] != "collection":
                continue
            found[place + " indexes"] = [repr(dict(index)) for index in client[name][info["name"]].list_indexes()]
            found[place + " count"] = client[name][info["name"]].estimated_document_count()
            stats = client[name].command("collStats", info["name"])
            found[place + " stats"] = {key: stats.get(key) for key in ("size", "count", "nindexes", "capped")}
    found["users"] = repr(client.admin.command({"usersInfo": {"forAllDBs": True}, "showCredentials": True})["users"])
    for name in DATABASES:
        found[name + " roles"] = repr(client[name].command("rolesInfo", 1, showPrivileges=True)["roles"])
    return found
