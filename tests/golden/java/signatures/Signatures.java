import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Random;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.SerializeType;

/** Prints frames that Apache's hook has signed, in hex: arguments are the version's ordinal and how many. */
public final class Signatures {
    private static final String[] TEXTS = {
        "orders", "UNIQ_KEY\u0001C0A80001\u0002TAGS\u0001PAID\u0002", "", "caf\u00e9", "\u65e5\u672c\u8a9e", "a\"b\\c/d", "%RETRY%g",
        "x y", "\uD83D\uDE00", "0", "line\nbreak"};

    /** The fields of a send of the second version, and a few of others. */
    public static final class Header implements CommandCustomHeader {
        private String a;
        private String b;
        private String c;
        private Integer d;
        private Long g;
        private String i;
        private Boolean k;
        private String consumerGroup;
        private String topic;

        @Override
        public void checkFields() {
        }
    }

    private Signatures() {
    }

    public static void main(String[] args) {
        int version = Integer.parseInt(args[0]);
        int count = Integer.parseInt(args[1]);
        Random chance = new Random(version);
        for (SerializeType type : SerializeType.values()) {
            for (int n = 0; n < count; n++) {
                System.out.println("FRAME " + one(chance, version, type, n));
            }
        }
        System.exit(0);
    }

    private static String one(Random chance, int version, SerializeType type, int n) {
        Header header = new Header();
        header.a = text(chance);
        header.b = text(chance);
        header.c = text(chance);
        header.d = chance.nextInt();
        header.g = chance.nextLong();
        header.i = text(chance);
        header.k = chance.nextBoolean() ? chance.nextBoolean() : null;
        header.consumerGroup = text(chance);
        header.topic = text(chance);
        boolean isQuery = n % 5 == 0;
        RemotingCommand command = RemotingCommand.createRequestCommand(isQuery ? 12 : 310, header);
        command.setVersion(version);
        command.setSerializeTypeCurrentRPC(type);
        if (n % 3 > 0) {
            byte[] body = new byte[chance.nextInt(300)];
            chance.nextBytes(body);
            command.setBody(body);
        }
        // Clients after 4.9.3 sign this field with the others; those before add it when they have signed.
        if (isQuery && version > 399) {
            command.addExtField("_UNIQUE_KEY_QUERY", "true");
        }
        SessionCredentials credentials = n % 4 == 0
            ? new SessionCredentials("java-user", "java-secret", "token-1") : new SessionCredentials("java-user", "java-secret");
        new AclClientRPCHook(credentials).doBeforeRequest("127.0.0.1:1", command);
        if (isQuery && version <= 399) {
            command.addExtField("_UNIQUE_KEY_QUERY", "true");
        }
        ByteBuffer head = command.encodeHeader();
        StringBuilder hex = new StringBuilder();
        byte[] bytes = new byte[head.remaining()];
        head.get(bytes);
        for (byte[] part : new byte[][] {bytes, command.getBody() == null ? new byte[0] : command.getBody()}) {
            for (byte one : part) {
                hex.append(String.format("%02x", one));
            }
        }
        return hex.toString();
    }

    private static String text(Random chance) {
        int place = chance.nextInt(TEXTS.length + 1);
        return place == TEXTS.length ? null : new String(TEXTS[place].getBytes(StandardCharsets.UTF_8), StandardCharsets.UTF_8);
    }
}
