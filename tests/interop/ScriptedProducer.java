import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own producer, controlled by JSON lines on standard input (tests/interop/workload.py writes them).
 * Bytes are base64, null is null. Each command that waits has ended when the next one starts; any failure ends the
 * process with its stack trace and exit code 1. Producers that are still open at the end are not closed: an open
 * transaction stays open.
 */
public final class ScriptedProducer {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    private final List<Future<RecordMetadata>> sent = new ArrayList<>();

    public static void main(String[] args) throws Exception {
        ScriptedProducer script = new ScriptedProducer();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            script.run(JSON.readTree(line));
        }
        Runtime.getRuntime().halt(0);
    }

    private void run(JsonNode command) throws Exception {
        String name = command.get("producer").asText();
        switch (command.get("do").asText()) {
            case "open" -> producers.put(name, open(command.get("config")));
            case "init" -> producers.get(name).initTransactions();
            case "begin" -> producers.get(name).beginTransaction();
            case "commit" -> producers.get(name).commitTransaction();
            case "abort" -> producers.get(name).abortTransaction();
            case "send" -> sent.add(producers.get(name).send(record(command)));
            case "flush" -> flush(producers.get(name));
            case "close" -> producers.remove(name).close();
            default -> throw new IllegalArgumentException(command.toString());
        }
    }

    private static KafkaProducer<byte[], byte[]> open(JsonNode config) {
        Map<String, Object> settings = new HashMap<>();
        config.properties().forEach(field -> settings.put(field.getKey(), field.getValue().asText()));
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private void flush(KafkaProducer<byte[], byte[]> producer) throws Exception {
        producer.flush();
        for (Future<RecordMetadata> one : sent) {
            one.get();
        }
        sent.clear();
    }

    private static ProducerRecord<byte[], byte[]> record(JsonNode command) throws IOException {
        RecordHeaders headers = new RecordHeaders();
        for (JsonNode header : command.get("headers")) {
            headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
        }
        return new ProducerRecord<>(
                command.get("topic").asText(),
                0,
                command.get("timestamp").asLong(),
                bytes(command.get("key")),
                bytes(command.get("value")),
                headers);
    }

    private static byte[] bytes(JsonNode base64) throws IOException {
        return base64.isNull() ? null : base64.binaryValue();
    }
}
