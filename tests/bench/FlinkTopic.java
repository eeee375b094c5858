import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.TableResult;

import java.io.BufferedReader;
import java.io.InputStreamReader;

/** Flink SQL beside Slackwater: for each line "in out" it aggregates one topic into another. */
public final class FlinkTopic {
  public static void main(String[] arguments) throws Exception {
    String broker = arguments[0];
    Configuration settings = new Configuration();
    settings.setString("parallelism.default", "2");
    settings.setString("execution.checkpointing.interval", "100 ms");
    settings.setString("execution.checkpointing.mode", "EXACTLY_ONCE");
    settings.setString("execution.checkpointing.dir", arguments[1]);
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    TableResult running = null;
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      if (running != null) {
        running.getJobClient().get().cancel().get();
      }
      String[] topics = line.split(" ");
      TableEnvironment flink =
          TableEnvironment.create(
              EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(settings).build());
      flink.executeSql(
          "CREATE TABLE messages (id BIGINT, customer STRING, amount DECIMAL(12, 2)) WITH ("
              + "'connector' = 'kafka', 'topic' = '" + topics[0] + "', 'format' = 'json', "
              + "'properties.bootstrap.servers' = '" + broker + "', "
              + "'properties.isolation.level' = 'read_committed', "
              + "'scan.startup.mode' = 'earliest-offset')");
      flink.executeSql(
          "CREATE TABLE totals (customer STRING, n BIGINT, amount DECIMAL(38, 2), "
              + "PRIMARY KEY (customer) NOT ENFORCED) WITH ("
              + "'connector' = 'upsert-kafka', 'topic' = '" + topics[1] + "', "
              + "'key.format' = 'raw', 'value.format' = 'json', "
              + "'sink.delivery-guarantee' = 'exactly-once', "
              + "'sink.transactional-id-prefix' = '" + topics[1] + "', "
              + "'properties.transaction.timeout.ms' = '600000', "
              + "'properties.bootstrap.servers' = '" + broker + "')");
      running =
          flink.executeSql(
              "INSERT INTO totals SELECT customer, count(*), sum(amount) FROM messages "
                  + "GROUP BY customer");
      System.out.println("started");
    }
  }

  private FlinkTopic() {}
}
