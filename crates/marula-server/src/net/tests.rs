//! The network over real sockets, with a service whose behaviour the first field of the body
//! selects.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use marula_bson::{DocBuf, Value, doc};
use marula_wire::message::MESSAGE_BYTES_MAX;
use marula_wire::{Client, Flags, Message, ReplyBuffer};
use parking_lot::Mutex;

use super::service::{Call, CallThread, Lane, Order, Peer, Reason, Service, Step, Wake};
use super::{CounterReader, Listener, NetHandle, Options, start};

const TIMEOUT: Duration = Duration::from_secs(20);

/// The service's state that the test observes.
#[derive(Default)]
struct Script {
    wakes: Mutex<Vec<Wake>>,
    closed: AtomicUsize,
    interrupted: AtomicUsize,
    given_up: AtomicUsize,
    /// The connections with which a worker was reported to be late.
    late: Mutex<Vec<u64>>,
    /// The maximum message size of connections; zero is MongoDB's limit.
    bytes_max: AtomicUsize,
    /// Pool calls of `wait` block until a message arrives here.
    gates: Mutex<HashMap<i32, Receiver<()>>>,
}

struct Connection {
    peer: Peer,
    id: u64,
    streamed: i32,
    bytes_max: usize,
}

impl Script {
    fn bytes_max(&self) -> usize {
        match self.bytes_max.load(Ordering::SeqCst) {
            0 => MESSAGE_BYTES_MAX,
            bytes => bytes,
        }
    }

    fn gate(&self, name: i32) -> Sender<()> {
        let (sender, receiver) = mpsc::channel();
        self.gates.lock().insert(name, receiver);
        sender
    }

    /// Waits until `count` requests are parked, then wakes them.
    fn wake(&self, count: usize) {
        wait_until(|| self.wakes.lock().len() >= count);
        self.wakes.lock().drain(..).for_each(Wake::wake);
    }
}

impl Service for Arc<Script> {
    type Connection = Connection;

    fn starting(&self, _: CounterReader) {}

    fn open(&self, peer: Peer, id: u64) -> Connection {
        Connection { peer, id, streamed: 0, bytes_max: self.bytes_max() }
    }

    fn call(
        &self,
        connection: &mut Connection,
        message: &Message<'_>,
        call: &Call,
        reply: &mut ReplyBuffer,
    ) -> Step {
        let first = message.body().iter().next().expect("a command has a first field");
        let n = first.value.get();
        let number = match n {
            Value::Int32(number) => number,
            _ => 0,
        };
        let script = Arc::clone(self);
        let on_pool = call.thread == CallThread::Pool;
        match first.name.to_string().as_str() {
            "echo" => {
                reply.body().append("echo", n).append("pool", on_pool).append("ok", 1.0);
                Step::Reply
            }
            "big" => {
                let text = "x".repeat(usize::try_from(number).unwrap());
                reply.body().append("big", text.as_str()).append("ok", 1.0);
                Step::Reply
            }
            "count" => {
                let docs = message.sequence("documents").map_or(0, |docs| docs.docs.count());
                reply.body().append("n", i32::try_from(docs).unwrap());
                Step::Reply
            }
            "pool" if !on_pool => Step::ToPool(Order::default()),
            "pool" => {
                reply.body().append("pool", n).append("id", i64::try_from(connection.id).unwrap());
                Step::Reply
            }
            "reserved" if !on_pool => Step::ToPool(Order { lane: Lane::Reserved, deadline: None }),
            "reserved" => {
                reply.body().append("reserved", n);
                Step::Reply
            }
            "late" if !on_pool => {
                let max = Duration::from_millis(u64::try_from(number).unwrap());
                Step::ToPool(Order { deadline: Some(call.arrived + max), ..Order::default() })
            }
            "late" => {
                reply.body().append("late", n);
                Step::Reply
            }
            "wait" if !on_pool => Step::ToPool(Order::default()),
            "wait" => {
                let gate = self.gates.lock().remove(&number).expect("the test made the gate");
                while gate.recv_timeout(Duration::from_millis(1)).is_err() {
                    if connection.peer.disconnected.get() {
                        self.interrupted.fetch_add(1, Ordering::SeqCst);
                        return Step::Close;
                    }
                }
                reply.body().append("waited", n);
                Step::Reply
            }
            "hold" => {
                reply.body().append("held", n);
                Step::Hold(Box::new(move |wake| script.wakes.lock().push(wake)))
            }
            "poolHold" if !on_pool => Step::ToPool(Order::default()),
            "poolHold" => {
                reply.body().append("held", n);
                Step::Hold(Box::new(move |wake| script.wakes.lock().push(wake)))
            }
            "retry" => match call.reason {
                Reason::Arrived => {
                    reply.body().append("forgotten", true);
                    let deadline =
                        Instant::now() + Duration::from_millis(u64::try_from(number).unwrap());
                    let arm = Box::new(move |wake| script.wakes.lock().push(wake));
                    Step::Retry(arm, deadline, Lane::Ordinary)
                }
                reason => {
                    assert!(on_pool);
                    reply.body().append("reason", format!("{reason:?}").as_str());
                    Step::Reply
                }
            },
            "stream" => {
                connection.streamed += 1;
                reply.body().append("part", connection.streamed);
                if connection.streamed < number {
                    Step::Stream(Lane::Ordinary)
                } else {
                    Step::Reply
                }
            }
            "panic" => {
                reply.body().append("half", 1);
                panic!("on purpose");
            }
            "poolPanic" if !on_pool => Step::ToPool(Order::default()),
            "poolPanic" => panic!("on purpose"),
            "block" => {
                // On the worker, against the rules.
                std::thread::sleep(Duration::from_millis(u64::try_from(number).unwrap()));
                reply.body().append("id", i64::try_from(connection.id).unwrap());
                Step::Reply
            }
            "nothing" => Step::Reply,
            "bye" => {
                reply.body().append("bye", 1);
                Step::Close
            }
            name => panic!("no command {name}"),
        }
    }

    fn close(&self, _connection: Connection) {
        self.closed.fetch_add(1, Ordering::SeqCst);
    }

    fn message_bytes_max(&self, connection: &Connection) -> usize {
        connection.bytes_max
    }

    fn is_ended(&self, connection: &Connection) -> bool {
        connection.peer.disconnected.get()
    }

    fn note_late(&self, connection: u64, late: Duration) {
        assert!(late >= Duration::from_secs(1));
        self.late.lock().push(connection);
    }

    fn give_up(&self, _connection: &mut Connection) {
        self.given_up.fetch_add(1, Ordering::SeqCst);
    }
}

struct Net {
    script: Arc<Script>,
    handle: NetHandle,
    address: SocketAddr,
}

fn net_with(change: impl FnOnce(&mut Options)) -> Net {
    let script = Arc::new(Script::default());
    let mut options = Options { workers: 2, ..Options::for_this_machine() };
    change(&mut options);
    let listener = Listener::tcp("127.0.0.1:0".parse().unwrap()).unwrap();
    let handle = start(vec![listener], Arc::new(Arc::clone(&script)), options).unwrap();
    let address = handle.local_addrs()[0];
    Net { script, handle, address }
}

fn net() -> Net {
    net_with(|_| {})
}

impl Net {
    fn client(&self) -> Client {
        Client::connect(self.address, TIMEOUT).unwrap()
    }

    fn check(&self, client: &mut Client, command: DocBuf, expected: DocBuf) {
        assert_eq!(client.run_command("test", command.as_doc()).unwrap(), expected);
    }

    fn end(self) {
        self.handle.shutdown(Duration::from_secs(5));
    }
}

fn wait_until(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "waited too long");
        thread::sleep(Duration::from_millis(1));
    }
}

fn echo(number: i32) -> (DocBuf, DocBuf) {
    (doc! { "echo": number }, doc! { "echo": number, "pool": false, "ok": 1.0 })
}

/// The bytes of an OP_MSG with `body`.
fn op_msg(body: &DocBuf, flags: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&i32::try_from(16 + 5 + body.len()).unwrap().to_le_bytes());
    bytes.extend_from_slice(&[7, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend_from_slice(&2013_i32.to_le_bytes());
    bytes.extend_from_slice(&flags.to_le_bytes());
    bytes.push(0);
    bytes.extend_from_slice(body);
    bytes
}

fn assert_closed(stream: &mut TcpStream) {
    match stream.read(&mut [0; 64]) {
        Ok(count) => assert_eq!(count, 0),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
}

#[test]
fn requests_are_answered_and_counted() {
    let net = net();
    let mut client = net.client();
    for number in 0..100 {
        let (command, expected) = echo(number);
        net.check(&mut client, command, expected);
    }
    net.check(&mut client, doc! { "pool": 1 }, doc! { "pool": 1, "id": 1_i64 });
    let connections = net.handle.connections();
    assert_eq!((connections.current, connections.total_created, connections.active), (1, 1, 0));
    assert_eq!(connections.available, 65_535);
    let network = net.handle.network();
    assert_eq!(network.requests, 101);
    assert_eq!(network.bytes_in, network.physical_bytes_in);
    assert!(network.bytes_out > 100 * 40);
    drop(client);
    wait_until(|| net.script.closed.load(Ordering::SeqCst) == 1);
    assert_eq!(net.handle.connections().current, 0);
    net.end();
}

#[test]
fn what_finds_too_many_waiting_is_refused() {
    let net = net_with(|options| {
        options.pool_threads_max = 1;
        options.queued_max = 1;
    });
    // Long calls are counted separately: four times the usual number of threads may have one.
    let mut busy = Vec::new();
    for number in 0..4 {
        let gate = net.script.gate(number);
        let mut client = net.client();
        client.send("t", doc! { "wait": number }.as_doc(), &[], Flags(0)).unwrap();
        wait_until(|| !net.script.gates.lock().contains_key(&number));
        busy.push((client, gate));
    }
    let mut second = net.client();
    second.send("t", doc! { "pool": 2 }.as_doc(), &[], Flags(0)).unwrap();
    // If the third came first, the second would be refused.
    wait_until(|| net.handle.network().requests > 4);
    thread::sleep(Duration::from_millis(50));
    let mut third = net.client();
    wait_until(|| {
        third.send("t", doc! { "late": 0 }.as_doc(), &[], Flags(0)).unwrap();
        third.receive().unwrap().1.get("code") == Some(Value::Int32(462))
    });
    let refused = net.script.given_up.load(Ordering::SeqCst);
    assert_eq!(net.handle.network().overloads, u64::try_from(refused).unwrap());
    // A long message, which is parsed in the pool, is rejected there.
    let large = vec![doc! { "x": "y".repeat(100_000).as_str() }];
    third.send("t", doc! { "pool": 3 }.as_doc(), &[("documents", &large)], Flags(0)).unwrap();
    let reply = third.receive().unwrap().1;
    assert_eq!(reply.get("codeName"), Some("IngressRequestRateLimitExceeded".into()));
    let labels = reply.get("errorLabels").and_then(|labels| labels.as_array()).unwrap();
    let labels: Vec<_> = labels.iter().map(|label| label.value.get()).collect();
    assert_eq!(labels, ["SystemOverloadedError".into(), "RetryableError".into()]);
    // Calls that need not wait, and those that operators need, are served.
    let (command, expected) = echo(4);
    net.check(&mut third, command, expected);
    net.check(&mut third, doc! { "reserved": 5 }, doc! { "reserved": 5 });
    for (number, (mut client, gate)) in (0..).zip(busy) {
        gate.send(()).unwrap();
        assert_eq!(client.receive().unwrap().1.get("waited"), Some(Value::Int32(number)));
    }
    assert_eq!(second.receive().unwrap().1.get("pool"), Some(Value::Int32(2)));
    net.end();
}

#[test]
fn an_address_has_as_many_connections_as_it_may() {
    let net = net_with(|options| options.connections_per_address_max = Some(2));
    let (mut first, mut second) = (net.client(), net.client());
    for client in [&mut first, &mut second] {
        let (command, expected) = echo(1);
        net.check(client, command, expected);
    }
    let mut third = TcpStream::connect(net.address).unwrap();
    third.set_read_timeout(Some(TIMEOUT)).unwrap();
    assert_closed(&mut third);
    assert_eq!(net.handle.connections().rejected, 1);
    drop(first);
    wait_until(|| net.script.closed.load(Ordering::SeqCst) == 1);
    let (command, expected) = echo(2);
    net.check(&mut net.client(), command, expected);
    net.end();
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let net = net();
    let mut client = net.client();
    let mut bytes = Vec::new();
    for number in 0..1_000 {
        let command = match number % 3 {
            0 => doc! { "echo": number },
            1 => doc! { "pool": number },
            _ => doc! { "retry": 0, "number": number },
        };
        bytes.extend_from_slice(&op_msg(&command, 0));
    }
    client.stream().write_all(&bytes).unwrap();
    for number in 0..1_000 {
        let (_, reply) = client.receive().unwrap();
        let (name, expected) = match number % 3 {
            0 => ("echo", Value::Int32(number)),
            1 => ("pool", Value::Int32(number)),
            _ => ("reason", "Deadline".into()),
        };
        assert_eq!(reply.get(name), Some(expected), "{number}");
    }
    net.end();
}

#[test]
fn a_message_may_come_byte_by_byte() {
    let net = net();
    let mut client = net.client();
    let mut other = net.client();
    let bytes = op_msg(&doc! { "echo": 5 }, 0);
    for (index, byte) in bytes.iter().enumerate() {
        client.stream().write_all(&[*byte]).unwrap();
        if index % 8 == 0 {
            let (command, expected) = echo(1);
            net.check(&mut other, command, expected);
        }
    }
    assert_eq!(client.receive().unwrap().1.get("echo"), Some(Value::Int32(5)));
    net.end();
}

#[test]
fn large_requests_and_replies_go_through() {
    let net = net();
    let mut client = net.client();
    let large = doc! { "x": "y".repeat(10_000).as_str() };
    let docs = vec![large; 2_000];
    for _ in 0..3 {
        client.send("t", doc! { "count": 1 }.as_doc(), &[("documents", &docs)], Flags(0)).unwrap();
        assert_eq!(client.receive().unwrap().1.get("n"), Some(Value::Int32(2_000)));
        let reply = client.run_command("t", doc! { "big": 16_000_000 }.as_doc()).unwrap();
        assert!(reply.len() > 16_000_000);
    }
    // A reply that is too large is replaced by an error.
    let reply = client.run_command("t", doc! { "big": 17_000_000 }.as_doc()).unwrap();
    assert_eq!(reply.as_doc().get("code"), Some(Value::Int32(10334)));
    net.end();
}

#[test]
fn broken_lengths_close_the_connection() {
    let net = net();
    for length in [0, 15, -1, i32::MIN, i32::MAX, 48_000_001] {
        let mut client = net.client();
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend_from_slice(&[0; 12]);
        client.stream().write_all(&bytes).unwrap();
        assert_closed(client.stream());
    }
    // The request before it still gets its reply.
    let mut client = net.client();
    let mut bytes = op_msg(&doc! { "echo": 1 }, 0);
    bytes.extend_from_slice(&[0xff; 16]);
    client.stream().write_all(&bytes).unwrap();
    assert_eq!(client.receive().unwrap().1.get("echo"), Some(Value::Int32(1)));
    assert_closed(client.stream());
    net.end();
}

#[test]
fn a_large_claim_takes_no_memory_and_blocks_nobody() {
    let net = net();
    let mut claims: Vec<Client> = (0..50).map(|_| net.client()).collect();
    for client in &mut claims {
        let mut bytes = 48_000_000_i32.to_le_bytes().to_vec();
        bytes.extend_from_slice(&[1; 1_000]);
        client.stream().write_all(&bytes).unwrap();
    }
    let mut client = net.client();
    let (command, expected) = echo(1);
    net.check(&mut client, command, expected);
    net.end();
}

#[test]
fn fifteen_hundred_connections_work_at_once() {
    let net = net();
    let mut clients: Vec<Client> = (0..1_500).map(|_| net.client()).collect();
    for round in 0..3 {
        for client in &mut clients {
            let command = if round == 2 {
                doc! { "pool": 1 }
            } else {
                doc! { "echo": 1 }
            };
            client.send("t", command.as_doc(), &[], Flags(0)).unwrap();
        }
        for client in &mut clients {
            client.receive().unwrap();
        }
    }
    assert_eq!(net.handle.connections().current, 1_500);
    drop(clients);
    wait_until(|| net.handle.connections().current == 0);
    net.end();
}

#[test]
fn replies_keep_their_order_whichever_way_they_are_sent() {
    let net = net_with(|options| options.workers = 1);
    let mut clients: Vec<Client> = (0..50).map(|_| net.client()).collect();
    let commands =
        [("echo", 0), ("pool", 1), ("echo", 2), ("big", 40_000), ("echo", 4), ("pool", 5)];
    for client in &mut clients {
        let mut bytes = Vec::new();
        for (command, n) in commands {
            let body = DocBuf::build(|body| {
                body.append(command, n);
            });
            bytes.extend(op_msg(&body, 0));
        }
        client.stream().write_all(&bytes).unwrap();
    }
    for client in &mut clients {
        for (command, n) in commands {
            let reply = client.receive().unwrap().1;
            match reply.get(command) {
                Some(Value::String(text)) => assert_eq!(text.len(), usize::try_from(n).unwrap()),
                found => assert_eq!(found, Some(Value::Int32(n)), "{command}"),
            }
        }
    }
    net.end();
}

#[test]
fn a_slow_reader_gets_everything_and_blocks_nobody() {
    let net = net();
    let mut slow = net.client();
    for _ in 0..40 {
        slow.stream().write_all(&op_msg(&doc! { "big": 1_000_000 }, 0)).unwrap();
    }
    let mut client = net.client();
    for number in 0..50 {
        let (command, expected) = echo(number);
        net.check(&mut client, command, expected);
    }
    for _ in 0..40 {
        assert!(slow.receive().unwrap().1.as_bytes().len() > 1_000_000);
    }
    let (command, expected) = echo(1);
    net.check(&mut slow, command, expected);
    net.end();
}

#[test]
fn a_client_that_leaves_interrupts_its_pool_call_only() {
    let net = net();
    let _never = net.script.gate(1);
    let open = net.script.gate(2);
    let mut leaver = net.client();
    let mut stayer = net.client();
    leaver.send("t", doc! { "wait": 1 }.as_doc(), &[], Flags(0)).unwrap();
    stayer.send("t", doc! { "wait": 2 }.as_doc(), &[], Flags(0)).unwrap();
    wait_until(|| net.handle.connections().active == 2);
    drop(leaver);
    wait_until(|| net.script.interrupted.load(Ordering::SeqCst) == 1);
    wait_until(|| net.handle.connections().current == 1);
    open.send(()).unwrap();
    assert_eq!(stayer.receive().unwrap().1.get("waited"), Some(Value::Int32(2)));
    assert_eq!(net.script.interrupted.load(Ordering::SeqCst), 1);
    net.end();
}

#[test]
fn long_work_does_not_keep_short_work_waiting() {
    let net = net();
    let gates: Vec<_> = (0..20).map(|name| net.script.gate(name)).collect();
    let mut waiters: Vec<Client> = (0..20).map(|_| net.client()).collect();
    for (name, client) in (0..).zip(&mut waiters) {
        client.send("t", doc! { "wait": name }.as_doc(), &[], Flags(0)).unwrap();
    }
    let mut client = net.client();
    client.run_command("t", doc! { "pool": 1 }.as_doc()).unwrap();
    for gate in &gates {
        gate.send(()).unwrap();
    }
    for client in &mut waiters {
        client.receive().unwrap();
    }
    net.end();
}

#[test]
fn a_full_pool_works_through_its_queue() {
    let net = net_with(|options| options.pool_threads_max = 1);
    let gate = net.script.gate(1);
    let mut first = net.client();
    first.send("t", doc! { "wait": 1 }.as_doc(), &[], Flags(0)).unwrap();
    wait_until(|| net.handle.connections().active == 1);
    let mut others: Vec<Client> = (0..10).map(|_| net.client()).collect();
    for client in &mut others {
        client.send("t", doc! { "pool": 1 }.as_doc(), &[], Flags(0)).unwrap();
    }
    wait_until(|| net.handle.connections().active == 11);
    gate.send(()).unwrap();
    first.receive().unwrap();
    for client in &mut others {
        client.receive().unwrap();
    }
    net.end();
}

#[test]
fn a_panic_is_answered_and_the_connection_goes_on() {
    let net = net();
    let mut client = net.client();
    for command in [doc! { "panic": 1 }, doc! { "poolPanic": 1 }, doc! { "nothing": 1 }] {
        let reply = client.run_command("t", command.as_doc()).unwrap();
        assert_eq!(reply.as_doc().get("code"), Some(Value::Int32(1)));
        assert_eq!(reply.as_doc().get("half"), None);
        let (command, expected) = echo(1);
        net.check(&mut client, command, expected);
    }
    net.end();
}

#[test]
fn a_held_reply_is_sent_when_woken() {
    let net = net();
    for command in ["hold", "poolHold"] {
        let mut client = net.client();
        let mut bytes = op_msg(&DocBuf::build(|doc| _ = doc.append(command, 1)), 0);
        bytes.extend_from_slice(&op_msg(&doc! { "echo": 2 }, 0));
        client.stream().write_all(&bytes).unwrap();
        client.stream().set_read_timeout(Some(Duration::from_millis(30))).unwrap();
        assert_eq!(client.stream().peek(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        client.stream().set_read_timeout(Some(TIMEOUT)).unwrap();
        net.script.wake(1);
        assert_eq!(client.receive().unwrap().1.get("held"), Some(Value::Int32(1)));
        assert_eq!(client.receive().unwrap().1.get("echo"), Some(Value::Int32(2)));
    }
    // A wake for a closed connection does nothing.
    let mut client = net.client();
    client.send("t", doc! { "retry": 100_000 }.as_doc(), &[], Flags(0)).unwrap();
    wait_until(|| net.script.wakes.lock().len() == 1);
    drop(client);
    wait_until(|| net.handle.connections().current == 0);
    net.script.wake(1);
    net.end();
}

#[test]
fn a_retry_is_called_when_woken_or_late() {
    let net = net();
    let mut client = net.client();
    client.send("t", doc! { "retry": 100_000 }.as_doc(), &[], Flags(0)).unwrap();
    net.script.wake(1);
    assert_eq!(client.receive().unwrap().1.get("reason"), Some("Woken".into()));
    net.check(&mut client, doc! { "retry": 20 }, doc! { "reason": "Deadline" });
    // Its wake comes too late and does nothing.
    net.script.wake(1);
    let (command, expected) = echo(1);
    net.check(&mut client, command, expected);
    net.end();
}

#[test]
fn a_stream_answers_each_reply_by_the_next() {
    let net = net();
    let mut client = net.client();
    let request = client
        .send("t", doc! { "stream": 5 }.as_doc(), &[], Flags(Flags::EXHAUST_ALLOWED))
        .unwrap();
    let mut previous = request;
    for part in 1..=5 {
        let mut head = [0; 16];
        client.stream().peek(&mut head).unwrap();
        let [_, id, response_to, _] = *head.as_chunks::<4>().0 else { unreachable!() };
        assert_eq!(i32::from_le_bytes(response_to), previous);
        previous = i32::from_le_bytes(id);
        let (flags, reply) = client.receive().unwrap();
        assert_eq!(flags.has(Flags::MORE_TO_COME), part < 5);
        assert_eq!(reply.get("part"), Some(Value::Int32(part)));
    }
    // Without the flag there is one reply.
    let mut client = net.client();
    net.check(&mut client, doc! { "stream": 5 }, doc! { "part": 1 });
    // A disconnected client ends its stream.
    let mut client = net.client();
    let endless = doc! { "stream": i32::MAX };
    client.send("t", endless.as_doc(), &[], Flags(Flags::EXHAUST_ALLOWED)).unwrap();
    client.receive().unwrap();
    drop(client);
    wait_until(|| net.handle.connections().current == 2);
    net.end();
}

#[test]
fn no_reply_is_sent_to_who_wants_none() {
    let net = net();
    let mut client = net.client();
    for command in ["echo", "hold", "pool", "panic", "nothing"] {
        let command = DocBuf::build(|doc| _ = doc.append(command, 1));
        client.send("t", command.as_doc(), &[], Flags(Flags::MORE_TO_COME)).unwrap();
    }
    let (command, expected) = echo(9);
    net.check(&mut client, command, expected);
    net.end();
}

#[test]
fn a_service_may_close() {
    let net = net();
    let mut client = net.client();
    net.check(&mut client, doc! { "bye": 1 }, doc! { "bye": 1 });
    assert_closed(client.stream());
    net.end();
}

#[test]
fn who_has_said_all_still_gets_the_replies() {
    let net = net();
    let mut client = net.client();
    for command in ["echo", "pool"] {
        let command = DocBuf::build(|doc| _ = doc.append(command, 1));
        client.send("t", command.as_doc(), &[], Flags(0)).unwrap();
    }
    client.stream().shutdown(Shutdown::Write).unwrap();
    client.receive().unwrap();
    client.receive().unwrap();
    assert_closed(client.stream());
    net.end();
}

#[test]
fn connections_past_the_limit_are_closed() {
    let net = net_with(|options| options.connections_max = 3);
    let mut clients: Vec<Client> = (0..3).map(|_| net.client()).collect();
    for client in &mut clients {
        let (command, expected) = echo(1);
        net.check(client, command, expected);
    }
    assert_closed(net.client().stream());
    assert_eq!(net.handle.connections().rejected, 1);
    drop(clients.pop());
    wait_until(|| net.handle.connections().current == 2);
    let (command, expected) = echo(1);
    net.check(&mut net.client(), command, expected);
    net.end();
}

#[test]
fn shutdown_lets_work_finish_and_then_interrupts() {
    let net = net();
    let gate = net.script.gate(1);
    let mut client = net.client();
    let idle = net.client();
    client.send("t", doc! { "wait": 1 }.as_doc(), &[], Flags(0)).unwrap();
    wait_until(|| net.handle.connections().active == 1);
    let Net { script, handle, .. } = net;
    let ending = thread::spawn(move || handle.shutdown(TIMEOUT));
    wait_until(|| script.closed.load(Ordering::SeqCst) == 1);
    gate.send(()).unwrap();
    assert_eq!(client.receive().unwrap().1.get("waited"), Some(Value::Int32(1)));
    ending.join().unwrap();
    drop(idle);

    let net = self::net();
    let _never = net.script.gate(1);
    let mut client = net.client();
    client.send("t", doc! { "wait": 1 }.as_doc(), &[], Flags(0)).unwrap();
    wait_until(|| net.handle.connections().active == 1);
    net.handle.shutdown(Duration::ZERO);
    assert_eq!(net.script.interrupted.load(Ordering::SeqCst), 1);
    assert_closed(client.stream());
}

#[test]
fn a_unix_socket_serves_and_is_removed() {
    use std::os::unix::net::UnixStream;

    let path = std::env::temp_dir().join(format!("marula-net-{}.sock", std::process::id()));
    let script = Arc::new(Script::default());
    let listener = Listener::unix(&path, 0o700).unwrap();
    let options = Options::for_this_machine();
    let handle = start(vec![listener], Arc::new(Arc::clone(&script)), options).unwrap();
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(&op_msg(&doc! { "echo": 1 }, 0)).unwrap();
    let mut head = [0; 16];
    stream.read_exact(&mut head).unwrap();
    handle.shutdown(Duration::ZERO);
    assert!(!path.exists());
}

#[test]
fn long_calls_leave_room_for_others() {
    let net = net_with(|options| options.pool_threads_max = 2);
    let wait = |number: i32| {
        let gate = net.script.gate(number);
        let mut client = net.client();
        client.send("t", doc! { "wait": number }.as_doc(), &[], Flags(0)).unwrap();
        wait_until(|| !net.script.gates.lock().contains_key(&number));
        (gate, client)
    };
    // Twice the usual number of threads: each call becomes a long one, and is no longer counted.
    let mut waiting: Vec<_> = (0..4).map(wait).collect();
    let mut client = net.client();
    net.check(&mut client, doc! { "pool": 1 }, doc! { "pool": 1, "id": 5_i64 });
    // With four times the number only the reserved lane has room.
    waiting.extend((4..8).map(wait));
    client.send("t", doc! { "pool": 2 }.as_doc(), &[], Flags(0)).unwrap();
    let mut other = net.client();
    net.check(&mut other, doc! { "reserved": 1 }, doc! { "reserved": 1 });
    // Waiting calls end at their deadline, and no call is made for a disconnected client.
    net.check(&mut other, doc! { "late": 50 }, doc! { "late": 50 });
    let closed = net.script.closed.load(Ordering::SeqCst);
    let mut gone = net.client();
    gone.send("t", doc! { "pool": 3 }.as_doc(), &[], Flags(0)).unwrap();
    drop(gone);
    wait_until(|| net.script.closed.load(Ordering::SeqCst) > closed);
    for (number, (gate, mut client)) in (0..).zip(waiting) {
        gate.send(()).unwrap();
        assert_eq!(client.receive().unwrap().1.get("waited"), Some(Value::Int32(number)));
    }
    assert_eq!(client.receive().unwrap().1.get("pool"), Some(Value::Int32(2)));
    net.end();
}

#[test]
fn a_long_message_is_read_on_the_pool() {
    let net = net();
    let mut client = net.client();
    // Short calls are executed where the message was parsed; the order of pipelined ones is kept.
    let long = doc! { "echo": 1, "x": "y".repeat(1_000_000).as_str() };
    let mut bytes = op_msg(&long, 0);
    bytes.extend_from_slice(&op_msg(&doc! { "echo": 2 }, 0));
    bytes.extend_from_slice(&op_msg(&doc! { "pool": 3, "x": "y".repeat(100_000).as_str() }, 0));
    bytes.extend_from_slice(&op_msg(&doc! { "echo": 4 }, 0));
    client.stream().write_all(&bytes).unwrap();
    for (name, number) in [("echo", 1), ("echo", 2), ("pool", 3), ("echo", 4)] {
        assert_eq!(client.receive().unwrap().1.get(name), Some(Value::Int32(number)));
    }
    let network = net.handle.network();
    assert_eq!((network.requests, network.bytes_in), (4, bytes.len() as u64));
    // A malformed one closes its connection, as a short one does.
    let mut broken = op_msg(&long, 0);
    let end = broken.len() - 1;
    broken[end] = 7;
    client.stream().write_all(&broken).unwrap();
    assert_eq!(client.receive().unwrap().1.get("ok"), Some(Value::Double(0.0)));
    net.end();
}

#[test]
fn a_message_that_its_sender_may_not_send_closes_the_connection() {
    let net = net();
    net.script.bytes_max.store(10_000, Ordering::SeqCst);
    let mut client = net.client();
    let (command, expected) = echo(1);
    net.check(&mut client, command, expected);
    // Its start suffices: the rest is not waited for.
    let long = op_msg(&doc! { "echo": 1, "x": "y".repeat(1_000_000).as_str() }, 0);
    client.stream().write_all(&long[..100]).unwrap();
    assert_closed(client.stream());
    net.end();
}

#[test]
fn a_worker_that_is_late_is_reported_once_with_the_connection() {
    let net = net();
    let mut quick = net.client();
    net.check(&mut quick, doc! { "block": 300 }, doc! { "id": 1_i64 });
    let mut slow = net.client();
    let held = slow.run_command("t", doc! { "block": 2_500 }.as_doc()).unwrap();
    let id = held.as_doc().get("id").and_then(|id| id.as_exact_i64()).unwrap();
    assert_eq!(*net.script.late.lock(), [u64::try_from(id).unwrap()]);
    assert_eq!(net.handle.network().late, 1);
    net.end();
}
