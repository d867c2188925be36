import java.math.BigDecimal;
import java.sql.Array;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Timestamp;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;

/**
 * Queries a coordinator as DBeaver does: Jdbc HOST:PORT TOKEN AUTHORITY.pem OTHER.pem ROWS; see
 * adbc.py. Fails where an answer is not what it should be.
 */
public class Jdbc {
  private static String address;
  private static String token;

  interface Work {
    void run() throws Exception;
  }

  public static void main(String[] arguments) throws Exception {
    address = arguments[0];
    token = arguments[1];
    String authority = arguments[2];
    int expected = Integer.parseInt(arguments[4]);
    Class.forName("org.apache.arrow.driver.jdbc.ArrowFlightJdbcDriver");
    try (Connection connection = connect(true, authority, "token", token)) {
      queries(connection);
      types(connection);
      tables(connection);
      many(connection, expected);
      errors(connection);
      one(connection, "SELECT 3 AS three", 3);
    }
    try (Connection connection = connect(true, authority, "user", "anybody", "password", token)) {
      one(connection, "SELECT 4 AS four", 4);
    }
    String refused = "the token is missing or wrong";
    fails(() -> ask(true, authority), refused);
    fails(() -> ask(true, authority, "token", "wrong"), refused);
    fails(() -> ask(true, authority, "user", "anybody", "password", "wrong"), refused);
    fails(() -> ask(true, arguments[3], "token", token));
    fails(() -> ask(false, authority, "token", token));
  }

  static Connection connect(boolean encrypted, String authority, String... settings)
      throws SQLException {
    Properties properties = new Properties();
    properties.put("useEncryption", String.valueOf(encrypted));
    if (encrypted) {
      properties.put("tlsRootCerts", authority);
    }
    for (int at = 0; at < settings.length; at += 2) {
      properties.put(settings[at], settings[at + 1]);
    }
    return DriverManager.getConnection("jdbc:arrow-flight-sql://" + address, properties);
  }

  static void ask(boolean encrypted, String authority, String... settings) throws SQLException {
    try (Connection connection = connect(encrypted, authority, settings)) {
      one(connection, "SELECT 1 AS one", 1);
    }
  }

  static void one(Connection connection, String text, long expected) throws SQLException {
    try (Statement statement = connection.createStatement();
        ResultSet rows = statement.executeQuery(text)) {
      check(rows.next(), text);
      equal(rows.getLong(1), expected);
      check(!rows.next(), text);
    }
  }

  static void queries(Connection connection) throws SQLException {
    one(connection, "SELECT 1 + 1 AS two", 2);
    one(connection, "SELECT max(id) AS last FROM `spark_catalog`.`default`.`people`", 2);
    try (PreparedStatement statement =
        connection.prepareStatement("SELECT name FROM people ORDER BY id")) {
      for (int time = 0; time < 2; time++) {
        try (ResultSet rows = statement.executeQuery()) {
          equal(rows.getMetaData().getColumnName(1), "name");
          check(rows.next(), "a row");
          equal(rows.getString(1), "eins");
        }
      }
    }
    check(connection.isValid(5), "the connection is valid");
  }

  static void types(Connection connection) throws SQLException {
    String text =
        "SELECT CAST(1.50 AS DECIMAL(10, 2)) AS d, TIMESTAMP '2026-11-23 12:34:56.789' AS t, "
            + "DATE '2026-11-23' AS day, array(1, 2, 3) AS a, "
            + "named_struct('x', 1, 'y', 'ä') AS s, NULL AS n, X'00FF' AS bin, true AS b";
    try (Statement statement = connection.createStatement();
        ResultSet rows = statement.executeQuery(text)) {
      check(rows.next(), "a row");
      equal(rows.getBigDecimal("d"), new BigDecimal("1.50"));
      Timestamp time = rows.getTimestamp("t");
      equal(time.toInstant().toString(), "2026-11-23T12:34:56.789Z");
      equal(rows.getDate("day").toString(), "2026-11-23");
      Array array = rows.getArray("a");
      equal(List.of((Object[]) array.getArray()).toString(), "[1, 2, 3]");
      String struct = rows.getObject("s").toString();
      check(struct.contains("1") && struct.contains("ä"), struct);
      check(rows.getObject("n") == null && rows.wasNull(), "NULL");
      equal(rows.getBytes("bin").length, 2);
      check(rows.getBoolean("b"), "true");
    }
  }

  static void tables(Connection connection) throws SQLException {
    List<String> names = new ArrayList<>();
    try (ResultSet rows = connection.getMetaData().getTables(null, null, "%", null)) {
      while (rows.next()) {
        equal(rows.getString("TABLE_SCHEM"), "default");
        equal(rows.getString("TABLE_TYPE"), "TABLE");
        names.add(rows.getString("TABLE_NAME"));
      }
    }
    equal(names, List.of("numbers", "people"));
    List<String> columns = new ArrayList<>();
    try (ResultSet rows = connection.getMetaData().getColumns(null, null, "people", null)) {
      while (rows.next()) {
        columns.add(rows.getString("COLUMN_NAME"));
      }
    }
    equal(columns, List.of("id", "name"));
    try (ResultSet rows = connection.getMetaData().getPrimaryKeys(null, null, "people")) {
      check(!rows.next(), "there are no keys");
    }
    try (ResultSet rows = connection.getMetaData().getImportedKeys(null, null, "people")) {
      check(!rows.next(), "there are no keys");
    }
    try (ResultSet rows = connection.getMetaData().getSchemas()) {
      check(rows.next(), "a schema");
      equal(rows.getString("TABLE_CATALOG"), "spark_catalog");
    }
    equal(connection.getMetaData().getDatabaseProductName(), "Millstream");
    equal(connection.getMetaData().getIdentifierQuoteString(), "`");
  }

  static void many(Connection connection, int expected) throws SQLException {
    long start = System.nanoTime();
    try (Statement statement = connection.createStatement();
        ResultSet rows = statement.executeQuery("SELECT id FROM numbers")) {
      long count = 0;
      long sum = 0;
      while (rows.next()) {
        count++;
        sum += rows.getLong(1);
      }
      equal(count, (long) expected);
      equal(sum, (long) expected * (expected + 1) / 2);
      System.out.printf("%d rows in %.2f s%n", count, (System.nanoTime() - start) / 1e9);
    }
  }

  static void errors(Connection connection) throws Exception {
    fails(() -> one(connection, "SELECT nmae FROM people", 0), "nmae", "query:1:8");
    fails(() -> one(connection, "SELECT * FROM poeple", 0), "did you mean `people`");
    fails(() -> one(connection, "SELECT 1 / (id - 1) AS x FROM people", 0), "zero");
    fails(() -> connection.prepareStatement("SELECT ? AS x"), "no parameters");
    fails(() -> connection.createStatement().execute("DELETE FROM people"), "write SELECT");
  }

  static void fails(Work work, String... expected) throws Exception {
    try {
      work.run();
    } catch (Exception error) {
      StringBuilder text = new StringBuilder();
      for (Throwable cause = error; cause != null; cause = cause.getCause()) {
        text.append(cause).append('\n');
      }
      for (String word : expected) {
        check(text.indexOf(word) >= 0, "'" + word + "' is not in: " + text);
      }
      check(text.indexOf(token) < 0, "the token is in: " + text);
      return;
    }
    throw new AssertionError("it was to fail with " + List.of(expected));
  }

  static void equal(Object found, Object expected) {
    check(found.equals(expected), found + " is not " + expected);
  }

  static void check(boolean holds, String what) {
    if (!holds) {
      throw new AssertionError(what);
    }
  }
}
