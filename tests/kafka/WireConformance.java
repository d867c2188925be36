import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.InvalidMetadataException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.message.ResponseHeaderData;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.ByteBufferOutputStream;

/**
 * What Kafka's own classes, which are made from its schema files, say of bytes of the protocol.
 *
 * Each line of standard input is a question in JSON, and each line of standard output its answer:
 * api, requests, responses, read and write (record batches), errors; the crate millstream-kafka
 * asks, in src/protocol/tests/conformance. What cannot be answered gets {"error": TRACE}.
 */
public class WireConformance {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final HexFormat HEX = HexFormat.of();
  private static final String ZEROS = "AAAAAAAAAAAAAAAAAAAAAA";

  public static void main(String[] arguments) throws Exception {
    // What libraries print is not an answer.
    PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    System.setOut(System.err);
    var questions =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = questions.readLine()) != null; ) {
      JsonNode answer;
      try {
        answer = answer(JSON.readTree(line));
      } catch (Throwable problem) {
        StringWriter trace = new StringWriter();
        problem.printStackTrace(new PrintWriter(trace));
        answer = JSON.createObjectNode().put("error", trace.toString());
      }
      answers.println(answer);
    }
  }

  private static JsonNode answer(JsonNode question) throws Exception {
    String what = question.get("ask").asText();
    return switch (what) {
      case "api" -> api(question);
      case "requests" -> requests(question);
      case "responses" -> responses(question);
      case "read" -> read(HEX.parseHex(question.get("batches").asText()));
      case "write" -> write(question.get("batches"));
      case "errors" -> errors();
      default -> throw new IllegalArgumentException(what);
    };
  }

  private static ApiKeys key(JsonNode question) {
    return ApiKeys.forId(question.get("key").asInt());
  }

  private static short version(JsonNode question) {
    return (short) question.get("version").asInt();
  }

  private static JsonNode api(JsonNode question) {
    ApiKeys key = key(question);
    short version = version(question);
    return JSON.createObjectNode()
        .put("name", key.name())
        .put("oldest", key.oldestVersion())
        .put("latest", key.latestVersion())
        .put("request_header", key.requestHeaderVersion(version))
        .put("response_header", key.responseHeaderVersion(version));
  }

  /** Decodes requests of one kind, and says which fields of its schema none of them sets. */
  private static JsonNode requests(JsonNode question) throws Exception {
    ApiKeys key = key(question);
    short version = version(question);
    ObjectNode answer = JSON.createObjectNode();
    ArrayNode decoded = answer.putArray("decoded");
    List<JsonNode> bodies = new ArrayList<>();
    for (JsonNode frame : question.get("frames")) {
      ByteBuffer bytes = ByteBuffer.wrap(HEX.parseHex(frame.asText()));
      var accessor = new ByteBufferAccessor(bytes);
      short headerVersion = key.requestHeaderVersion(version);
      RequestHeaderData header = new RequestHeaderData(accessor, headerVersion);
      Message body = key.messageType.newRequest();
      body.read(accessor, version);
      ObjectNode json = (ObjectNode) json(body, version);
      bodies.add(json);
      ObjectNode one = decoded.addObject();
      one.set("header", json(header, headerVersion));
      one.set("body", json);
      one.put("left", bytes.remaining());
      one.put("again", encoded(header, headerVersion) + encoded(body, version));
    }
    Coverage coverage = new Coverage();
    coverage.of(key.messageType.requestSchemas()[version], bodies, "");
    answer.set("unset", texts(coverage.unset));
    return answer;
  }

  /**
   * Encodes responses of one kind, with and without tagged fields of later versions, and says which
   * fields of its schema none of them sets, and which that may be null none of them has as null.
   */
  private static JsonNode responses(JsonNode question) throws Exception {
    ApiKeys key = key(question);
    short version = version(question);
    ObjectNode answer = JSON.createObjectNode();
    ArrayNode plain = answer.putArray("plain");
    ArrayNode tagged = answer.putArray("tagged");
    List<JsonNode> bodies = new ArrayList<>();
    short headerVersion = key.responseHeaderVersion(version);
    for (JsonNode json : question.get("bodies")) {
      bodies.add(json);
      var header = new ResponseHeaderData();
      header.setCorrelationId(question.get("correlation").asInt());
      Message body = message(key.messageType.newResponse(), json, version);
      plain.add(encoded(header, headerVersion) + encoded(body, version));
      Schema schema = key.messageType.responseSchemas()[version];
      if (headerVersion > 0) {
        addTags(header, JSON.createObjectNode(), 3);
      }
      if (isFlexible(schema)) {
        addTags(body, json, 200);
      }
      tagged.add(encoded(header, headerVersion) + encoded(body, version));
    }
    Coverage coverage = new Coverage();
    coverage.of(key.messageType.responseSchemas()[version], bodies, "");
    answer.set("unset", texts(coverage.unset));
    answer.set("never_null", texts(coverage.neverNull));
    answer.set("unknown", texts(coverage.unknown));
    return answer;
  }

  private static boolean isFlexible(Schema schema) {
    BoundField[] fields = schema.fields();
    return fields.length > 0 && fields[fields.length - 1].def.type instanceof TaggedFields;
  }

  private static ArrayNode texts(Collection<String> texts) {
    ArrayNode array = JSON.createArrayNode();
    texts.forEach(array::add);
    return array;
  }

  private static Class<?> converter(Message message) throws Exception {
    return Class.forName(message.getClass().getName() + "JsonConverter");
  }

  /** As Kafka's converter says, which leaves the bytes of record batches out. */
  private static JsonNode json(Message message, short version) throws Exception {
    var write = converter(message).getMethod("write", message.getClass(), short.class);
    JsonNode json = (JsonNode) write.invoke(null, message, version);
    addRecords(message, json);
    return json;
  }

  private static Message message(Message kind, JsonNode json, short version) throws Exception {
    var read = converter(kind).getMethod("read", JsonNode.class, short.class);
    return (Message) read.invoke(null, json, version);
  }

  private static String encoded(Message message, short version) {
    ByteBuffer bytes = MessageUtil.toByteBufferAccessor(message, version).buffer();
    byte[] all = new byte[bytes.remaining()];
    bytes.get(all);
    return HEX.formatHex(all);
  }

  private static List<Field> fields(Message message) {
    List<Field> fields = new ArrayList<>();
    for (Field field : message.getClass().getDeclaredFields()) {
      if (!Modifier.isStatic(field.getModifiers())) {
        field.setAccessible(true);
        fields.add(field);
      }
    }
    return fields;
  }

  /** A structure, and what it is in JSON. */
  private record Part(Message message, JsonNode json) {}

  /** The structures within a message that its JSON has, too. */
  private static List<Part> parts(Message message, JsonNode json) throws Exception {
    List<Part> parts = new ArrayList<>();
    for (Field field : fields(message)) {
      Object value = field.get(message);
      JsonNode node = json.get(field.getName());
      if (node == null || node.isNull()) {
        continue;
      }
      if (value instanceof Message inner) {
        parts.add(new Part(inner, node));
      } else if (value instanceof Collection<?> list) {
        Iterator<JsonNode> nodes = node.elements();
        for (Object element : list) {
          JsonNode of = nodes.next();
          if (element instanceof Message inner) {
            parts.add(new Part(inner, of));
          }
        }
      }
    }
    return parts;
  }

  private static void addRecords(Message message, JsonNode json) throws Exception {
    for (Field field : fields(message)) {
      if (field.get(message) instanceof MemoryRecords records) {
        byte[] bytes = MessageUtil.byteBufferToArray(records.buffer());
        ((ObjectNode) json).remove(field.getName() + "SizeInBytes");
        ((ObjectNode) json).put(field.getName(), Base64.getEncoder().encodeToString(bytes));
      }
    }
    for (Part part : parts(message, json)) {
      addRecords(part.message, part.json);
    }
  }

  /**
   * Two tagged fields that no schema has, in each structure that is encoded; one has a number of
   * three bytes.
   */
  private static void addTags(Message message, JsonNode json, int bytes) throws Exception {
    for (Part part : parts(message, json)) {
      addTags(part.message, part.json, 3);
    }
    message.unknownTaggedFields().add(new RawTaggedField(77, new byte[bytes]));
    message.unknownTaggedFields().add(new RawTaggedField(20_000, new byte[0]));
  }

  /** Which fields of a schema messages in JSON have, each at least once other than by default. */
  private static class Coverage {
    final List<String> unset = new ArrayList<>();
    final List<String> neverNull = new ArrayList<>();
    final List<String> unknown = new ArrayList<>();

    void of(Schema schema, List<JsonNode> nodes, String path) {
      Set<String> names = new HashSet<>();
      for (BoundField field : schema.fields()) {
        if (field.def.type instanceof TaggedFields tagged) {
          tagged.fields().values().forEach(it -> one(it.name, it.type, nodes, path, names));
        } else {
          one(field.def.name, field.def.type, nodes, path, names);
        }
      }
      for (JsonNode node : nodes) {
        node.fieldNames().forEachRemaining(
            name -> {
              if (!names.contains(name)) {
                unknown.add(path + name);
              }
            });
      }
    }

    private void one(
        String field, Type type, List<JsonNode> nodes, String path, Set<String> names) {
      String name = camel(field);
      names.add(name);
      List<JsonNode> values = new ArrayList<>();
      for (JsonNode node : nodes) {
        if (node.has(name)) {
          values.add(node.get(name));
        }
      }
      if (type.isNullable() && values.stream().noneMatch(JsonNode::isNull)) {
        neverNull.add(path + name);
      }
      List<JsonNode> set = values.stream().filter(it -> !isDefault(it)).toList();
      Type element = type.arrayElementType().orElse(null);
      if (set.stream().noneMatch(it -> element == null || it.size() > 1)) {
        unset.add(path + name);
      }
      if (element instanceof Schema inner) {
        List<JsonNode> all = new ArrayList<>();
        set.forEach(list -> list.forEach(all::add));
        of(inner, all, path + name + ".");
      } else if (type instanceof Schema inner) {
        of(inner, set, path + name + ".");
      }
    }

    private static boolean isDefault(JsonNode value) {
      if (value.isNull() || value.isContainerNode() && value.isEmpty()) {
        return true;
      }
      if (value.isTextual()) {
        return value.asText().isEmpty() || value.asText().equals(ZEROS);
      }
      return value.isNumber() && (value.asLong() == 0 || value.asLong() == -1)
          || value.isBoolean() && !value.asBoolean();
    }

    /** The name in JSON of what a schema calls some_field. */
    private static String camel(String name) {
      StringBuilder camel = new StringBuilder();
      for (String word : name.split("_")) {
        boolean isFirst = camel.isEmpty();
        camel.append(isFirst ? word : Character.toUpperCase(word.charAt(0)) + word.substring(1));
      }
      return camel.toString();
    }
  }

  private static String hex(ByteBuffer bytes) {
    return bytes == null ? null : HEX.formatHex(MessageUtil.byteBufferToArray(bytes));
  }

  /** Reads record batches as a consumer and a broker do, and checks them. */
  private static JsonNode read(byte[] bytes) {
    MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(bytes));
    ObjectNode answer = JSON.createObjectNode();
    answer.put("valid", records.validBytes());
    ArrayNode batches = answer.putArray("batches");
    for (MutableRecordBatch batch : records.batches()) {
      batch.ensureValid();
      ObjectNode one = batches.addObject();
      one.put("magic", batch.magic());
      one.put("bytes", batch.sizeInBytes());
      one.put("compression", batch.compressionType().name);
      one.put("timestamps", batch.timestampType().name);
      one.put("transactional", batch.isTransactional());
      one.put("control", batch.isControlBatch());
      one.put("base", batch.baseOffset());
      one.put("last", batch.lastOffset());
      one.put("count", batch.countOrNull());
      one.put("producer", batch.producerId());
      one.put("epoch", batch.producerEpoch());
      one.put("sequence", batch.baseSequence());
      one.put("last_sequence", batch.lastSequence());
      one.put("latest", batch.maxTimestamp());
      one.put("delete_horizon", batch.deleteHorizonMs().isPresent());
      one.put("leader_epoch", batch.partitionLeaderEpoch());
      ArrayNode inside = one.putArray("records");
      for (Record record : batch) {
        record.ensureValid();
        inside.add(record(record));
      }
    }
    return answer;
  }

  private static JsonNode record(Record record) {
    ObjectNode one = JSON.createObjectNode();
    one.put("offset", record.offset());
    one.put("timestamp", record.timestamp());
    one.put("sequence", record.sequence());
    one.put("key", hex(record.key()));
    one.put("value", hex(record.value()));
    ArrayNode headers = one.putArray("headers");
    for (Header header : record.headers()) {
      byte[] value = header.value();
      ArrayNode pair = headers.addArray().add(header.key());
      pair.add(value == null ? null : HEX.formatHex(value));
    }
    return one;
  }

  /** Writes record batches, one after the other. */
  private static JsonNode write(JsonNode batches) throws Exception {
    StringBuilder all = new StringBuilder();
    for (JsonNode batch : batches) {
      MemoryRecordsBuilder builder = builder(batch);
      if (batch.has("marker")) {
        JsonNode marker = batch.get("marker");
        var type = ControlRecordType.valueOf(marker.get("type").asText());
        var end = new EndTransactionMarker(type, marker.get("coordinator_epoch").asInt());
        builder.appendEndTxnMarker(marker.get("timestamp").asLong(), end);
      }
      for (JsonNode record : batch.path("records")) {
        builder.appendWithOffset(
            record.get("offset").asLong(),
            record.get("timestamp").asLong(),
            bytes(record.get("key")),
            bytes(record.get("value")),
            headers(record.path("headers")));
      }
      if (batch.has("last")) {
        builder.overrideLastOffset(batch.get("last").asLong());
      }
      all.append(hex(builder.build().buffer()));
    }
    return JSON.createObjectNode().put("batches", all.toString());
  }

  private static MemoryRecordsBuilder builder(JsonNode batch) {
    boolean isAppendTime = batch.get("timestamps").asText().equals("LogAppendTime");
    return new MemoryRecordsBuilder(
        new ByteBufferOutputStream(1 << 16),
        (byte) batch.path("magic").asInt(RecordBatch.CURRENT_MAGIC_VALUE),
        Compression.of(batch.get("compression").asText()).build(),
        isAppendTime ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME,
        batch.get("base").asLong(),
        batch.path("append_time").asLong(RecordBatch.NO_TIMESTAMP),
        batch.path("producer").asLong(RecordBatch.NO_PRODUCER_ID),
        (short) batch.path("epoch").asInt(RecordBatch.NO_PRODUCER_EPOCH),
        batch.path("sequence").asInt(RecordBatch.NO_SEQUENCE),
        batch.path("transactional").asBoolean(),
        batch.has("marker"),
        batch.path("leader_epoch").asInt(RecordBatch.NO_PARTITION_LEADER_EPOCH),
        1 << 24,
        batch.path("delete_horizon").asLong(RecordBatch.NO_TIMESTAMP));
  }

  private static byte[] bytes(JsonNode hex) {
    return hex.isNull() ? null : HEX.parseHex(hex.asText());
  }

  private static Header[] headers(JsonNode pairs) {
    List<Header> headers = new ArrayList<>();
    pairs.forEach(
        pair -> headers.add(new RecordHeader(pair.get(0).asText(), bytes(pair.get(1)))));
    return headers.toArray(new Header[0]);
  }

  /** All error codes, and which of them Kafka's own client takes for transient. */
  private static JsonNode errors() {
    ArrayNode all = JSON.createArrayNode();
    for (Errors error : Errors.values()) {
      var exception = error.exception();
      all.addObject()
          .put("code", error.code())
          .put("name", error.name())
          .put("retriable", exception instanceof RetriableException)
          .put("metadata", exception instanceof InvalidMetadataException);
    }
    return all;
  }
}
