import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;

/**
 * A tool that draws its tree from a Thrift server: it reads all tables and all columns, so many
 * times in turn.
 *
 * <p>Prints for each time what both took in microseconds, and how many rows there were.
 */
final class MetadataClient {
  public static void main(String[] arguments) throws Exception {
    try (Connection connection = DriverManager.getConnection(arguments[0])) {
      for (int round = Integer.parseInt(arguments[1]); round > 0; round--) {
        long start = System.nanoTime();
        int tables = read(connection.getMetaData().getTables(null, null, "%", null));
        long between = System.nanoTime();
        int columns = read(connection.getMetaData().getColumns(null, null, "%", "%"));
        long end = System.nanoTime();
        System.out.printf(
            "%d %d %d %d%n", (between - start) / 1000, (end - between) / 1000, tables, columns);
      }
    }
  }

  private static int read(ResultSet result) throws SQLException {
    int rows = 0;
    try (result) {
      while (result.next()) {
        result.getString("TABLE_NAME");
        rows++;
      }
    }
    return rows;
  }
}
