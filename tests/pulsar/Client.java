import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;

/**
 * Pulsar's client for Java, for what the one for Python cannot do.
 *
 * Client.java URL chunks TOPIC FROM COUNT CHUNKS: writes numbers from FROM on, each with padding and
 * in so many chunks of 1000 bytes. Two producers take turns, and do not wait, so that the chunks of
 * one message stand between those of others.
 */
public class Client {
    private static final int CHUNK_BYTES = 1_000;

    public static void main(String[] arguments) throws Exception {
        if (!arguments[1].equals("chunks")) {
            throw new IllegalArgumentException(arguments[1]);
        }
        String topic = arguments[2];
        int first = Integer.parseInt(arguments[3]);
        int count = Integer.parseInt(arguments[4]);
        String padding = "x".repeat(CHUNK_BYTES * Integer.parseInt(arguments[5]) - 500);
        try (PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).build();
                Producer<byte[]> one = producer(client, topic);
                Producer<byte[]> other = producer(client, topic)) {
            List<CompletableFuture<?>> sent = new ArrayList<>();
            for (int number = first; number < first + count; number++) {
                Producer<byte[]> producer = number % 2 == 0 ? one : other;
                sent.add(producer.sendAsync((number + padding).getBytes()));
            }
            CompletableFuture.allOf(sent.toArray(CompletableFuture[]::new))
                    .get(60, TimeUnit.SECONDS);
        }
    }

    private static Producer<byte[]> producer(PulsarClient client, String topic) throws Exception {
        return client.newProducer()
                .topic(topic)
                .enableBatching(false)
                .enableChunking(true)
                .chunkMaxMessageSize(CHUNK_BYTES)
                .maxPendingMessages(10_000)
                .blockIfQueueFull(true)
                .create();
    }
}
