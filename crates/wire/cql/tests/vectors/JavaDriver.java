import com.datastax.oss.driver.internal.core.protocol.ByteBufPrimitiveCodec;
import com.datastax.oss.protocol.internal.Compressor;
import com.datastax.oss.protocol.internal.Frame;
import com.datastax.oss.protocol.internal.FrameCodec;
import com.datastax.oss.protocol.internal.Message;
import com.datastax.oss.protocol.internal.PrimitiveCodec;
import com.datastax.oss.protocol.internal.Segment;
import com.datastax.oss.protocol.internal.SegmentBuilder;
import com.datastax.oss.protocol.internal.SegmentCodec;
import com.datastax.oss.protocol.internal.request.Execute;
import com.datastax.oss.protocol.internal.request.Query;
import com.datastax.oss.protocol.internal.request.query.QueryOptions;
import com.datastax.oss.protocol.internal.response.*;
import com.datastax.oss.protocol.internal.response.Error;
import com.datastax.oss.protocol.internal.response.error.*;
import com.datastax.oss.protocol.internal.response.event.*;
import com.datastax.oss.protocol.internal.response.result.*;
import com.datastax.oss.protocol.internal.response.result.Void;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.Unpooled;
import io.netty.buffer.UnpooledByteBufAllocator;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.*;

/**
 * Writes what the Java driver's protocol library says nodes and clients send, for the tests beside
 * this file.
 *
 * <pre>
 * for jar in org.apache.cassandra:java-driver-core:4.19.0 com.datastax.oss:native-protocol:1.5.1 \
 *     io.netty:netty-buffer:4.1.94.Final io.netty:netty-common:4.1.94.Final; do
 *   mvn -q dependency:copy -Dartifact=$jar -DoutputDirectory=jars
 * done
 * java -cp 'jars/*' JavaDriver.java > java_driver.txt
 * </pre>
 *
 * One line each: a name and bytes in hex. The library's own encoders make them.
 */
public class JavaDriver {
  static final PrimitiveCodec<ByteBuf> BUFFERS =
      new ByteBufPrimitiveCodec(UnpooledByteBufAllocator.DEFAULT);
  static final FrameCodec<ByteBuf> SERVER =
      FrameCodec.defaultServer(BUFFERS, Compressor.none());
  static final FrameCodec<ByteBuf> CLIENT =
      FrameCodec.defaultClient(BUFFERS, Compressor.none());
  static final byte[] ID = HexFormat.of().parseHex("00112233445566778899aabbccddeeff");
  static final byte[] METADATA_ID = HexFormat.of().parseHex("ffeeddccbbaa99887766554433221100");

  static void say(String name, ByteBuf bytes) {
    System.out.println(name + " " + ByteBufUtil.hexDump(bytes));
  }

  static void response(int version, String name, Message message) {
    int stream = message instanceof Event ? -1 : 7;
    Frame frame =
        Frame.forResponse(version, stream, null, Frame.NO_PAYLOAD, List.of(), message);
    say("v" + version + "." + name, SERVER.encode(frame));
  }

  static ByteBuffer utf8(String text) {
    return ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8));
  }

  public static void main(String[] arguments) throws Exception {
    System.out.println("# made by JavaDriver.java with com.datastax.oss:native-protocol:1.5.1");
    for (int version = 4; version <= 5; version++) {
      errors(version);
      events(version);
      results(version);
      others(version);
      requests(version);
    }
    segments();
  }

  static void errors(int version) throws Exception {
    Map<InetAddress, Integer> reasons = new LinkedHashMap<>();
    reasons.put(InetAddress.getByName("127.0.0.1"), 0);
    reasons.put(InetAddress.getByName("::1"), 3);
    response(version, "error.plain", new Error(0x1001, "überlastet"));
    response(version, "error.unavailable", new Unavailable("few", 6, 2, 1));
    response(version, "error.write_timeout", new WriteTimeout("late", 4, 1, 2, "SIMPLE"));
    response(version, "error.read_timeout", new ReadTimeout("late", 1, 0, 1, true));
    response(version, "error.read_failure", new ReadFailure("bad", 5, 1, 3, 2, reasons, false));
    response(
        version, "error.write_failure", new WriteFailure("bad", 7, 1, 3, 2, reasons, "BATCH_LOG"));
    response(
        version, "error.function",
        new FunctionFailure("no", "ks", "f", List.of("int", "list<text>")));
    response(version, "error.exists", new AlreadyExists("there", "ks", "t"));
    response(version, "error.unprepared", new Unprepared("what", ID));
    if (version >= 5) {
      response(version, "error.cas_unknown", new CASWriteUnknown("perhaps", 8, 1, 2));
    }
  }

  static void events(int version) throws Exception {
    InetSocketAddress v4 = new InetSocketAddress(InetAddress.getByName("10.1.2.3"), 9042);
    InetSocketAddress v6 = new InetSocketAddress(InetAddress.getByName("fd00::7"), 65535);
    response(version, "event.topology", new TopologyChangeEvent("NEW_NODE", v4));
    response(version, "event.status", new StatusChangeEvent("DOWN", v6));
    response(
        version, "event.keyspace",
        new SchemaChangeEvent("CREATED", "KEYSPACE", "ks", null, null));
    response(version, "event.table", new SchemaChangeEvent("UPDATED", "TABLE", "ks", "t", null));
    response(version, "event.type", new SchemaChangeEvent("DROPPED", "TYPE", "ks", "u", null));
    response(
        version, "event.function",
        new SchemaChangeEvent("CREATED", "FUNCTION", "ks", "f", List.of("int", "text")));
    response(
        version, "event.aggregate",
        new SchemaChangeEvent("CREATED", "AGGREGATE", "ks", "a", List.of()));
  }

  static RawType primitive(int id) {
    return RawType.PRIMITIVES.get(id);
  }

  static void results(int version) {
    response(version, "result.void", Void.INSTANCE);
    response(version, "result.keyspace", new SetKeyspace("ks"));
    response(version, "result.schema", new SchemaChange("CREATED", "TABLE", "ks", "t", null));
    RawType text = primitive(0x0D);
    List<ColumnSpec> columns =
        List.of(
            new ColumnSpec("system", "local", "key", 0, text),
            new ColumnSpec("system", "local", "host_id", 1, primitive(0x0C)),
            new ColumnSpec("system", "local", "tokens", 2, new RawType.RawSet(text)),
            new ColumnSpec("system", "local", "truncated_at", 3, new RawType.RawMap(text, text)),
            new ColumnSpec("system", "local", "rpc_address", 4, primitive(0x10)),
            new ColumnSpec("system", "local", "gossip_generation", 5, primitive(0x09)));
    Queue<List<ByteBuffer>> rows = new ArrayDeque<>();
    ByteBuffer tokens = ByteBuffer.wrap(HexFormat.of().parseHex("00000002000000012d0000000131"));
    rows.add(
        Arrays.asList(
            utf8("local"), ByteBuffer.wrap(ID), tokens, null,
            ByteBuffer.wrap(new byte[] {127, 0, 0, 1}), ByteBuffer.allocate(4).putInt(0, -2)));
    rows.add(Arrays.asList(utf8(""), null, null, null, null, null));
    RowsMetadata metadata = new RowsMetadata(columns, null, null, null);
    response(version, "result.rows", new DefaultRows(metadata, rows));
    List<ColumnSpec> mixed =
        List.of(
            new ColumnSpec("ks", "a", "tuple", 0,
                new RawType.RawTuple(List.of(primitive(0x09), new RawType.RawList(text)))),
            new ColumnSpec("ks", "b", "custom", 1, new RawType.RawCustom("org.example.Vector")),
            new ColumnSpec("ks", "b", "udt", 2, udt(text)));
    byte[] id = version >= 5 ? METADATA_ID : null;
    response(version, "result.mixed",
        new DefaultRows(new RowsMetadata(mixed, utf8("next page"), null, id), new ArrayDeque<>()));
    response(version, "result.skipped",
        new DefaultRows(new RowsMetadata(2, utf8("page"), null, null), new ArrayDeque<>()));
    RowsMetadata variables =
        new RowsMetadata(columns.subList(0, 3), null, new int[] {2, 0}, null);
    RowsMetadata none = new RowsMetadata(List.of(), null, new int[] {}, null);
    byte[] resultId = version >= 5 ? METADATA_ID : null;
    response(version, "result.prepared", new Prepared(ID, resultId, variables, metadata));
    response(version, "result.prepared.write", new Prepared(ID, resultId, none, none));
  }

  static RawType udt(RawType text) {
    Map<String, RawType> fields = new LinkedHashMap<>();
    fields.put("street", text);
    fields.put("numbers", new RawType.RawSet(primitive(0x09)));
    return new RawType.RawUdt("ks", "address", fields);
  }

  static void others(int version) {
    response(version, "ready", new Ready());
    response(version, "authenticate", new Authenticate("org.example.PasswordAuthenticator"));
    response(version, "auth_challenge", new AuthChallenge(utf8("who")));
    response(version, "auth_success", new AuthSuccess(null));
    Map<String, List<String>> options = new LinkedHashMap<>();
    options.put("COMPRESSION", List.of("snappy", "lz4"));
    options.put("PROTOCOL_VERSIONS", List.of("3/v3", "4/v4", "5/v5", "6/v6-beta"));
    options.put("NOTHING", List.of());
    response(version, "supported", new Supported(options));
    Map<String, ByteBuffer> payload = new LinkedHashMap<>();
    payload.put("evenkeel", utf8("q=3"));
    payload.put("other", null);
    UUID tracing = new UUID(0x0011223344556677L, 0x8899aabbccddeeffL);
    // Not both: the library writes them in another order than the specification and Cassandra.
    Frame frame =
        Frame.forResponse(version, 32767, tracing, payload, List.of(), Void.INSTANCE);
    say("v" + version + ".prelude.payload", SERVER.encode(frame));
    frame =
        Frame.forResponse(
            version, 0, tracing, Frame.NO_PAYLOAD, List.of("be careful", "ä"), Void.INSTANCE);
    say("v" + version + ".prelude.warnings", SERVER.encode(frame));
  }

  static void requests(int version) {
    Map<String, ByteBuffer> named = new LinkedHashMap<>();
    named.put("k", utf8("key"));
    named.put("v", null);
    String keyspace = version >= 5 ? "ks" : null;
    int now = version >= 5 ? 1700000000 : Integer.MIN_VALUE;
    QueryOptions options =
        new QueryOptions(
            1, List.of(), named, true, 100, utf8("state"), 8, -5L, keyspace, now);
    Query query = new Query("SELECT", options);
    Frame frame = Frame.forRequest(version, 1, true, Frame.NO_PAYLOAD, query);
    say("v" + version + ".query.named", CLIENT.encode(frame));
    QueryOptions positional =
        new QueryOptions(
            10, Arrays.asList(utf8("key"), null), Map.of(), true, -1, null, 8,
            Long.MIN_VALUE, null, Integer.MIN_VALUE);
    byte[] metadataId = version >= 5 ? METADATA_ID : null;
    frame =
        Frame.forRequest(
            version, 2, false, Frame.NO_PAYLOAD, new Execute(ID, metadataId, positional));
    say("v" + version + ".execute.skip", CLIENT.encode(frame));
  }

  /** Ten envelopes of growing length, written together: of each segment its edges. */
  static void segments() {
    SegmentCodec<ByteBuf> codec = new SegmentCodec<>(BUFFERS, Compressor.none());
    SegmentBuilder<ByteBuf, Integer> builder =
        new SegmentBuilder<ByteBuf, Integer>(BUFFERS, SERVER) {
          @Override
          protected Integer mergeStates(List<Integer> states) {
            return 0;
          }

          @Override
          protected List<Integer> splitState(Integer state, int parts) {
            return Collections.nCopies(parts, 0);
          }

          @Override
          protected void processSegment(Segment<ByteBuf> segment, Integer state) {
            List<Object> parts = new ArrayList<>();
            codec.encode(segment, parts);
            ByteBuf all = Unpooled.buffer();
            for (Object part : parts) {
              all.writeBytes((ByteBuf) part);
            }
            int length = all.readableBytes();
            ByteBuf edges = Unpooled.buffer();
            edges.writeBytes(all.slice(0, 20)).writeBytes(all.slice(length - 4, 4));
            say("segment." + length, edges);
          }
        };
    for (int length = 1; length <= 1 << 18; length *= 4) {
      String text = "x".repeat(length);
      Queue<List<ByteBuffer>> rows = new ArrayDeque<>();
      rows.add(List.of(utf8(text)));
      RowsMetadata metadata = new RowsMetadata(1, null, null, null);
      Message message = new DefaultRows(metadata, rows);
      builder.addFrame(
          Frame.forResponse(5, length % 997, null, Frame.NO_PAYLOAD, List.of(), message), 0);
    }
    builder.flush();
  }
}
