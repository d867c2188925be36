import java.io.BufferedOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.transaction.Transaction;

/**
 * Pulsar's client for Java, as a bare writer and as the meter of what is written.
 *
 * PulsarClient.java URL write TOPIC RATE exactly-once|at-least-once
 *     writes rows that are due, each with its number and the moment at which it was due, until it is
 *     ended. It takes all that are due, sends them, waits until they are stored, and takes the next;
 *     exactly once, they are a transaction, and it waits until that is committed.
 * PulsarClient.java URL meter TOPIC
 *     prints a line for each message: what it holds, and when it was received.
 *
 * Moments are microseconds since the epoch.
 */
public class BareClient {
    private static final int ROWS_MAX = 1_000;

    public static void main(String[] arguments) throws Exception {
        boolean isWriter = arguments[1].equals("write");
        boolean isExactlyOnce = isWriter && arguments[4].equals("exactly-once");
        try (PulsarClient client = PulsarClient.builder()
                .serviceUrl(arguments[0])
                .enableTransaction(isExactlyOnce)
                .build()) {
            if (isWriter) {
                write(client, arguments[2], Long.parseLong(arguments[3]), isExactlyOnce);
            } else {
                meter(client, arguments[2]);
            }
        }
    }

    private static void write(PulsarClient client, String topic, long rate, boolean isExactlyOnce)
            throws Exception {
        Producer<byte[]> producer = client.newProducer()
                .topic(topic)
                .sendTimeout(0, TimeUnit.SECONDS)
                // A message of a transaction becomes part of a batch later than it is sent, when the
                // topic takes part, and would miss the flush.
                .batchingMaxPublishDelay(1, TimeUnit.MILLISECONDS)
                .batchingMaxMessages(ROWS_MAX)
                .maxPendingMessages(2 * ROWS_MAX)
                .blockIfQueueFull(true)
                .create();
        long begun = nowMicros();
        long written = 0;
        while (true) {
            long due = begun + written * 1_000_000 / rate;
            long wait = due - nowMicros();
            if (wait > 0) {
                TimeUnit.MICROSECONDS.sleep(wait);
            }
            Transaction transaction = isExactlyOnce
                    ? client.newTransaction().withTransactionTimeout(60, TimeUnit.SECONDS).build().get()
                    : null;
            List<CompletableFuture<MessageId>> sent = new ArrayList<>();
            long now = nowMicros();
            while (due <= now && sent.size() < ROWS_MAX) {
                byte[] value = (written + " " + due).getBytes(StandardCharsets.US_ASCII);
                sent.add(isExactlyOnce
                        ? producer.newMessage(transaction).value(value).sendAsync()
                        : producer.sendAsync(value));
                written++;
                due = begun + written * 1_000_000 / rate;
            }
            producer.flushAsync();
            CompletableFuture.allOf(sent.toArray(CompletableFuture[]::new)).get();
            if (isExactlyOnce) {
                transaction.commit().get();
            }
        }
    }

    private static void meter(PulsarClient client, String topic) throws Exception {
        PrintStream output = new PrintStream(new BufferedOutputStream(System.out, 1 << 16), false);
        try (Reader<byte[]> reader = client.newReader()
                .topic(topic)
                .startMessageId(MessageId.earliest)
                .receiverQueueSize(10_000)
                .create()) {
            output.println("ready");
            output.flush();
            while (true) {
                // What has come is printed before anything is waited for.
                Message<byte[]> message = reader.readNext(0, TimeUnit.MILLISECONDS);
                if (message == null) {
                    output.flush();
                    message = reader.readNext();
                }
                long now = nowMicros();
                output.println(new String(message.getValue(), StandardCharsets.US_ASCII) + " " + now);
            }
        }
    }

    private static long nowMicros() {
        return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
    }
}
