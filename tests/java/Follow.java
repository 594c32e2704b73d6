import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Prints what Debezium's embedded engine tells of a server, until its input ends.
 *
 * <p>Arguments: the connection string, the file in which the engine keeps how far it has come, the capture mode. A line is
 * the topic, the key and the value, with tabs between them; "END" and the reason when the engine stops.
 */
public class Follow {
    public static void main(String[] args) throws Exception {
        Properties props = new Properties();
        props.setProperty("name", "follow");
        props.setProperty("connector.class", "io.debezium.connector.mongodb.MongoDbConnector");
        props.setProperty("offset.storage", "org.apache.kafka.connect.storage.FileOffsetBackingStore");
        props.setProperty("offset.storage.file.filename", args[1]);
        props.setProperty("offset.flush.interval.ms", "0");
        props.setProperty("mongodb.connection.string", args[0]);
        props.setProperty("topic.prefix", "t");
        props.setProperty("collection.include.list", "shop[.].*");
        props.setProperty("capture.mode", args[2]);
        props.setProperty("provide.transaction.metadata", "true");
        // Keys and values without their schemas.
        props.setProperty("key.converter.schemas.enable", "false");
        props.setProperty("value.converter.schemas.enable", "false");
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class).using(props)
            .using((success, message, error) -> System.out.println("END\t" + message + "\t" + error))
            .notifying(event -> System.out.println(event.destination() + "\t" + event.key() + "\t" + event.value()))
            .build();
        ExecutorService executor = Executors.newSingleThreadExecutor();
        executor.execute(engine);
        while (System.in.read() >= 0) { }
        engine.close();
        executor.shutdown();
        System.exit(0);
    }
}
