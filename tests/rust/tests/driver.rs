//! What an application does through the official Rust driver; each test has a server of its own.

use marula_driver_tests::Server;
use mongodb::IndexModel;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};
use mongodb::error::{Error, ErrorKind, WriteFailure};
use mongodb::options::{
    AuthMechanism, ClientOptions, Compressor, Credential, IndexOptions, ReturnDocument,
};
use mongodb::sync::{Client, Collection};

/// A server, which ends with the value, and an empty collection on it.
fn fresh() -> (Server, Collection<Document>) {
    let server = Server::start();
    let client = Client::with_uri_str(&server.uri).expect("the address is one");
    let name = format!("t_rust_{}", ObjectId::new().to_hex());
    (server, client.database(&name).collection("c"))
}

fn code(error: &Error) -> Option<i32> {
    match error.kind.as_ref() {
        ErrorKind::Command(error) => Some(error.code),
        ErrorKind::Write(WriteFailure::WriteError(error)) => Some(error.code),
        ErrorKind::InsertMany(error) => error.write_errors.as_ref().map(|errors| errors[0].code),
        _ => None,
    }
}

#[test]
fn types_come_back() {
    let (_server, c) = fresh();
    let document = doc! {
        "_id": ObjectId::new(), "int": 1, "long": 2_i64, "double": 3.0, "text": "é", "list": [1, { "a": null }],
        "date": DateTime::from_millis(-1), "bool": true, "decimal": Bson::Decimal128("1.50".parse().expect("a number")),
    };
    c.insert_one(&document).run().expect("inserted");
    assert_eq!(c.find_one(doc! {}).run().expect("found"), Some(document));
}

#[test]
fn create_read_update_delete() {
    let (_server, c) = fresh();
    let many = (0..10).map(|i| doc! { "_id": i, "n": i % 3 });
    assert_eq!(c.insert_many(many).run().expect("inserted").inserted_ids.len(), 10);
    let updated =
        c.update_many(doc! { "n": 1 }, doc! { "$inc": { "n": 10 } }).run().expect("updated");
    assert_eq!((updated.matched_count, updated.modified_count), (3, 3));
    let upserted = c
        .update_one(doc! { "_id": 99 }, doc! { "$set": { "n": 1 } })
        .upsert(true)
        .run()
        .expect("upserted");
    assert_eq!(upserted.upserted_id, Some(Bson::Int32(99)));
    let found: Vec<i32> = c
        .find(doc! { "n": { "$gte": 2 } })
        .sort(doc! { "_id": -1 })
        .limit(3)
        .run()
        .expect("a cursor")
        .map(|document| document.expect("a document").get_i32("_id").expect("an int"))
        .collect();
    assert_eq!(found, [8, 7, 5]);
    let changed = c
        .find_one_and_update(doc! { "_id": 0 }, doc! { "$set": { "x": 1 } })
        .return_document(ReturnDocument::After)
        .run()
        .expect("changed");
    assert_eq!(changed, Some(doc! { "_id": 0, "n": 0, "x": 1 }));
    assert_eq!(c.delete_many(doc! { "n": 11 }).run().expect("deleted").deleted_count, 3);
    assert_eq!(c.count_documents(doc! {}).run().expect("counted"), 8);
    assert_eq!(c.distinct("n", doc! { "_id": { "$lt": 9 } }).run().expect("distinct").len(), 2);
}

#[test]
fn errors_have_codes() {
    let (_server, c) = fresh();
    c.insert_one(doc! { "_id": 1 }).run().expect("inserted");
    assert_eq!(code(&c.insert_one(doc! { "_id": 1 }).run().expect_err("a duplicate")), Some(11000));
    let unordered = c
        .insert_many([doc! { "_id": 2 }, doc! { "_id": 1 }, doc! { "_id": 3 }])
        .ordered(false)
        .run();
    assert_eq!(code(&unordered.expect_err("a duplicate")), Some(11000));
    assert_eq!(c.count_documents(doc! {}).run().expect("counted"), 3);
    assert_eq!(code(&c.find(doc! { "$nope": 1 }).run().expect_err("no such operator")), Some(2));
    let unknown = c.aggregate([doc! { "$nope": 1 }]).run();
    assert_eq!(code(&unknown.expect_err("no such stage")), Some(40324));
}

#[test]
fn cursors_and_aggregation() {
    let (_server, c) = fresh();
    c.insert_many((0..1000).map(|i| doc! { "_id": i, "k": i % 7 })).run().expect("inserted");
    assert_eq!(c.find(doc! {}).batch_size(33).run().expect("a cursor").count(), 1000);
    let groups = c
        .aggregate([
            doc! { "$group": { "_id": "$k", "n": { "$sum": 1 } } },
            doc! { "$sort": { "_id": 1 } },
        ])
        .run()
        .expect("a cursor")
        .map(|group| group.expect("a group").get_i32("n").expect("an int"))
        .collect::<Vec<_>>();
    assert_eq!(groups, [143, 143, 143, 143, 143, 143, 142]);
}

#[test]
fn indexes() {
    let (_server, c) = fresh();
    let unique = IndexOptions::builder().unique(true).build();
    c.create_index(IndexModel::builder().keys(doc! { "k": 1 }).options(unique).build())
        .run()
        .expect("an index");
    assert_eq!(c.list_index_names().run().expect("names"), ["_id_", "k_1"]);
    c.insert_one(doc! { "k": 1 }).run().expect("inserted");
    assert_eq!(code(&c.insert_one(doc! { "k": 1 }).run().expect_err("a duplicate")), Some(11000));
    c.drop_index("k_1").run().expect("dropped");
    c.insert_one(doc! { "k": 1 }).run().expect("inserted");
}

#[test]
fn compression() {
    for name in ["snappy", "zlib", "zstd"] {
        let (server, c) = fresh();
        let mut options = ClientOptions::parse(&server.uri).run().expect("the address is one");
        options.compressors = Some(vec![match name {
            "snappy" => Compressor::Snappy,
            "zlib" => Compressor::Zlib { level: None },
            _ => Compressor::Zstd { level: None },
        }]);
        let client = Client::with_options(options).expect("the options fit");
        let compressed: Collection<Document> = client.database(&c.namespace().db).collection("c");
        compressed
            .insert_many((0..500).map(|i| doc! { "_id": i, "t": "text ".repeat(100) }))
            .run()
            .expect(name);
        assert_eq!(c.count_documents(doc! {}).run().expect(name), 500);
        assert_eq!(compressed.find(doc! {}).run().expect(name).count(), 500);
    }
}

#[test]
fn threads() {
    let (_server, c) = fresh();
    c.insert_one(doc! { "_id": 1, "n": 0 }).run().expect("inserted");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..25 {
                    c.update_one(doc! { "_id": 1 }, doc! { "$inc": { "n": 1 } })
                        .run()
                        .expect("updated");
                }
            });
        }
    });
    let document = c.find_one(doc! {}).run().expect("found").expect("a document");
    assert_eq!(document.get_i32("n").expect("a number"), 200);
}

#[test]
fn collections_and_sessions() {
    let server = Server::start();
    let client = Client::with_uri_str(&server.uri).expect("the address is one");
    let db = client.database("sessions");
    let c: Collection<Document> = db.collection("c");
    db.create_collection("made").run().expect("made");
    let mut session = client.start_session().run().expect("a session");
    c.insert_one(doc! {}).session(&mut session).run().expect("inserted");
    let mut names = db.list_collection_names().run().expect("names");
    names.sort();
    assert_eq!(names, ["c", "made"]);
    db.drop().run().expect("dropped");
    assert!(db.list_collection_names().run().expect("names").is_empty());
    let pong = client.database("admin").run_command(doc! { "ping": 1 }).run().expect("pong");
    assert_eq!(pong.get_f64("ok").expect("it is there"), 1.0);
}

#[test]
fn users_sign_in() {
    let server = Server::start();
    let client = Client::with_uri_str(&server.uri).expect("the address is one");
    let db = client.database("users");
    db.run_command(doc! { "createUser": "ada", "pwd": "secret", "roles": ["readWrite"] })
        .run()
        .expect("created");
    let sign_in = |mechanism: AuthMechanism, password: &str| {
        let mut options = ClientOptions::parse(&server.uri).run().expect("the address is one");
        let credential = Credential::builder()
            .username("ada".to_owned())
            .password(password.to_owned())
            .source("users".to_owned())
            .mechanism(mechanism);
        options.credential = Some(credential.build());
        let client = Client::with_options(options).expect("a client");
        client.database("users").run_command(doc! { "connectionStatus": 1 }).run()
    };
    for mechanism in [AuthMechanism::ScramSha1, AuthMechanism::ScramSha256] {
        let status = sign_in(mechanism.clone(), "secret").expect("signed in");
        let users =
            status.get_document("authInfo").and_then(|info| info.get_array("authenticatedUsers"));
        assert_eq!(users.expect("users"), &[Bson::from(doc! { "user": "ada", "db": "users" })]);
        let error = sign_in(mechanism, "wrong").expect_err("refused");
        assert!(matches!(*error.kind, ErrorKind::Authentication { .. }), "{error}");
    }
}
