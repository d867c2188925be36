import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;

/** Runs a Flink SQL script in this process: {@code FlinkRelay SCRIPT CHECKPOINTS INTERVAL}. */
public class FlinkRelay {
    public static void main(String[] arguments) throws Exception {
        Configuration settings = new Configuration();
        settings.setString("parallelism.default", "1");
        settings.setString("execution.checkpointing.dir", Path.of(arguments[1]).toUri().toString());
        settings.setString("execution.checkpointing.interval", arguments[2]);
        // The default holds records back for up to 100 ms.
        settings.setString("execution.buffer-timeout.interval", "1 ms");
        settings.setString("taskmanager.memory.network.min", "64mb");
        settings.setString("rest.address", "127.0.0.1");
        settings.setString("rest.port", "0");
        EnvironmentSettings environment =
                EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(settings).build();
        TableEnvironment tables = TableEnvironment.create(environment);
        for (String statement : Files.readString(Path.of(arguments[0])).split(";\n")) {
            if (statement.startsWith("INSERT")) {
                tables.executeSql(statement).await();
            } else if (!statement.isBlank()) {
                tables.executeSql(statement);
            }
        }
    }
}
