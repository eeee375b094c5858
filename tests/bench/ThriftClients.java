import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CyclicBarrier;
import java.util.stream.LongStream;

/**
 * Clients of a Thrift server that ask at the same time: for each of the statements in turn, and as
 * often as there are rounds, all clients ask for so many milliseconds.
 *
 * <p>Prints for each statement and round its number, how many answers there were, and the median,
 * the 99th percentile and the longest of what they took, in microseconds.
 */
final class ThriftClients {
  public static void main(String[] arguments) throws Exception {
    String url = arguments[0];
    int clients = Integer.parseInt(arguments[1]);
    int rounds = Integer.parseInt(arguments[2]);
    long roundMs = Long.parseLong(arguments[3]);
    List<String> statements = Arrays.asList(arguments).subList(4, arguments.length);
    CyclicBarrier barrier = new CyclicBarrier(clients + 1);
    long[][][] times = new long[rounds * statements.size()][clients][];
    List<Thread> threads = new ArrayList<>();
    for (int client = 0; client < clients; client++) {
      int own = client;
      Thread thread =
          new Thread(
              () -> {
                try (Connection connection = DriverManager.getConnection(url);
                    Statement statement = connection.createStatement()) {
                  for (int turn = 0; turn < times.length; turn++) {
                    barrier.await();
                    String text = statements.get(turn % statements.size());
                    times[turn][own] = ask(statement, text, roundMs);
                  }
                  barrier.await();
                } catch (Exception error) {
                  error.printStackTrace();
                  System.exit(1);
                }
              });
      thread.start();
      threads.add(thread);
    }
    for (int turn = 0; turn <= times.length; turn++) barrier.await();
    for (Thread thread : threads) thread.join();
    for (int turn = 0; turn < times.length; turn++) {
      long[] sorted = Arrays.stream(times[turn]).flatMapToLong(LongStream::of).sorted().toArray();
      System.out.println(
          turn % statements.size()
              + " "
              + sorted.length
              + " "
              + sorted[sorted.length / 2] / 1000
              + " "
              + sorted[(int) (sorted.length * 0.99)] / 1000
              + " "
              + sorted[sorted.length - 1] / 1000);
    }
  }

  private static long[] ask(Statement statement, String text, long roundMs) throws SQLException {
    List<Long> times = new ArrayList<>();
    long began = System.nanoTime();
    long now = began;
    while (now - began < roundMs * 1_000_000L) {
      try (ResultSet rows = statement.executeQuery(text)) {
        while (rows.next()) rows.getString(1);
      }
      long answered = System.nanoTime();
      times.add(answered - now);
      now = answered;
    }
    return times.stream().mapToLong(Long::longValue).toArray();
  }
}
