package golden;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.Supplier;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.protocol.LanguageCode;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.ResponseCode;
import org.apache.rocketmq.remoting.protocol.SerializeType;
import org.apache.rocketmq.remoting.protocol.header.PullMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.PullMessageResponseHeader;
import org.apache.rocketmq.remoting.protocol.header.QueryConsumerOffsetRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.SendMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.SendMessageRequestHeaderV2;
import org.apache.rocketmq.remoting.protocol.header.SendMessageResponseHeader;
import org.apache.rocketmq.remoting.protocol.header.UpdateConsumerOffsetRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.namesrv.GetRouteInfoRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.namesrv.RegisterBrokerRequestHeader;

/** Whole frames as NettyEncoder writes them, in both codecs, beside what RemotingCommand.decode reads back. */
final class Frames {
    private static final List<Object> ROWS = new ArrayList<>();

    private Frames() {
    }

    static void write() throws Exception {
        both("send_v2", () -> request(RequestCode.SEND_MESSAGE_V2, sendV2(), 101, "hello".getBytes(StandardCharsets.UTF_8)));
        both("send_v1", () -> request(RequestCode.SEND_MESSAGE, SendMessageRequestHeaderV2.createSendMessageRequestHeaderV1(sendV2()), 102, new byte[] {0, 1}));
        both("send_oneway", () -> {
            RemotingCommand command = request(RequestCode.SEND_MESSAGE_V2, sendV2(), 103, new byte[] {9});
            command.markOnewayRPC();
            return command;
        });
        both("send_response", () -> {
            SendMessageResponseHeader header = new SendMessageResponseHeader();
            header.setMsgId("7F00000100002A9F00000000000003E8");
            header.setQueueId(3);
            header.setQueueOffset(9999999999L);
            header.setTransactionId("7F00000100002A139A556C1D2E3F0000");
            return response(ResponseCode.SUCCESS, header, 101, null, null);
        });
        both("pull", () -> request(RequestCode.PULL_MESSAGE, pull(), 104, null));
        both("pull_response", () -> {
            PullMessageResponseHeader header = new PullMessageResponseHeader();
            header.setSuggestWhichBrokerId(0L);
            header.setNextBeginOffset(132L);
            header.setMinOffset(0L);
            header.setMaxOffset(4294967296L);
            header.setTopicSysFlag(0);
            header.setGroupSysFlag(0);
            return response(ResponseCode.SUCCESS, header, 104, "FOUND", new byte[] {1, 2, 3});
        });
        both("query_offset", () -> {
            QueryConsumerOffsetRequestHeader header = new QueryConsumerOffsetRequestHeader();
            header.setConsumerGroup("group");
            header.setTopic("topic");
            header.setQueueId(0);
            header.setSetZeroIfNotFound(false);
            header.setBrokerName("broker-a");
            return request(RequestCode.QUERY_CONSUMER_OFFSET, header, 105, null);
        });
        both("update_offset_oneway", () -> {
            UpdateConsumerOffsetRequestHeader header = new UpdateConsumerOffsetRequestHeader();
            header.setConsumerGroup("group");
            header.setTopic("topic");
            header.setQueueId(2);
            header.setCommitOffset(77L);
            RemotingCommand command = request(RequestCode.UPDATE_CONSUMER_OFFSET, header, 106, null);
            command.markOnewayRPC();
            return command;
        });
        both("heartbeat", () -> request(RequestCode.HEART_BEAT, null, 107, Bodies.heartbeat().encode()));
        both("route", () -> {
            GetRouteInfoRequestHeader header = new GetRouteInfoRequestHeader();
            header.setTopic("TopicTest");
            header.setAcceptStandardJsonOnly(true);
            return request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header, 108, null);
        });
        both("route_response", () -> response(ResponseCode.SUCCESS, null, 108, null, Bodies.route().encode()));
        both("register_broker", () -> register(false));
        both("register_broker_compressed", () -> register(true));
        both("remark", () -> response(ResponseCode.TOPIC_NOT_EXIST, null, -1, "topic[x] not exist, apply first please! \"é\" 😀\n\tsee docs", null));
        both("empty", () -> request(RequestCode.GET_ALL_TOPIC_CONFIG, null, 0, null));
        both("language", () -> {
            RemotingCommand command = request(RequestCode.GET_BROKER_RUNTIME_INFO, null, Integer.MAX_VALUE, null);
            command.setLanguage(LanguageCode.PYTHON);
            command.setVersion(0);
            return command;
        });
        both("ext_text", Frames::extText);
        // The binary header's code is a short: POP exists in JSON only.
        one("pop", SerializeType.JSON, () -> request(RequestCode.POP_MESSAGE, null, 110, null));
        Out.json("frames.json", ROWS);
    }

    private static RemotingCommand extText() {
        RemotingCommand command = request(RequestCode.UPDATE_BROKER_CONFIG, null, 109, null);
        command.addExtField("plain", "value");
        command.addExtField("unicode", "日本語 é");
        command.addExtField("nonBmp", "😀𝒯");
        command.addExtField("escapes", "\"quoted\" back\\slash /slash");
        command.addExtField("control", "\u0000\u0001\u0002\b\t\n\u000b\f\r\u001f\u007f\u0080\u009f");
        command.addExtField("separators", "\u2028\u2029");
        command.addExtField("html", "<a href='x'>&amp;</a>");
        command.addExtField("empty", "");
        command.addExtField("name é", "v");
        command.addExtField("properties", "TAGS\u0001TagA\u0002KEYS\u0001k\u0002");
        return command;
    }

    private static SendMessageRequestHeaderV2 sendV2() {
        SendMessageRequestHeader header = new SendMessageRequestHeader();
        header.setProducerGroup("producer");
        header.setTopic("TopicTest");
        header.setDefaultTopic("TBW102");
        header.setDefaultTopicQueueNums(4);
        header.setQueueId(3);
        header.setSysFlag(0);
        header.setBornTimestamp(1700000000123L);
        header.setFlag(-5);
        header.setProperties("KEYS\u0001k1 k2\u0002TAGS\u0001TagA\u0002UNIQ_KEY\u00017F00000100002A139A556C1D2E3F0000\u0002WAIT\u0001true\u0002");
        header.setReconsumeTimes(0);
        header.setUnitMode(false);
        header.setMaxReconsumeTimes(16);
        header.setBatch(false);
        header.setBrokerName("broker-a");
        return SendMessageRequestHeaderV2.createSendMessageRequestHeaderV2(header);
    }

    private static PullMessageRequestHeader pull() {
        PullMessageRequestHeader header = new PullMessageRequestHeader();
        header.setConsumerGroup("group");
        header.setTopic("TopicTest");
        header.setQueueId(1);
        header.setQueueOffset(100L);
        header.setMaxMsgNums(32);
        header.setSysFlag(7);
        header.setCommitOffset(98L);
        header.setSuspendTimeoutMillis(15000L);
        header.setSubscription("TagA || TagB");
        header.setSubVersion(1700000000456L);
        header.setExpressionType("TAG");
        header.setMaxMsgBytes(262144);
        header.setBrokerName("broker-a");
        return header;
    }

    private static RemotingCommand register(boolean compressed) {
        RegisterBrokerRequestHeader header = new RegisterBrokerRequestHeader();
        header.setBrokerName("broker-a");
        header.setBrokerAddr("10.0.0.1:10911");
        header.setClusterName("DefaultCluster");
        header.setHaServerAddr("10.0.0.1:10912");
        header.setBrokerId(0L);
        header.setEnableActingMaster(false);
        header.setCompressed(compressed);
        byte[] body = Bodies.register().encode(compressed);
        header.setBodyCrc32(org.apache.rocketmq.common.UtilAll.crc32(body));
        return request(RequestCode.REGISTER_BROKER, header, compressed ? 112 : 111, body);
    }

    private static RemotingCommand request(int code, CommandCustomHeader header, int opaque, byte[] body) {
        RemotingCommand command = RemotingCommand.createRequestCommand(code, header);
        return finish(command, opaque, body);
    }

    private static RemotingCommand response(int code, CommandCustomHeader header, int opaque, String remark, byte[] body) {
        RemotingCommand command = RemotingCommand.createResponseCommandWithHeader(code, header);
        command.setRemark(remark);
        return finish(command, opaque, body);
    }

    private static RemotingCommand finish(RemotingCommand command, int opaque, byte[] body) {
        command.setOpaque(opaque);
        command.setVersion(MQVersion.CURRENT_VERSION);
        command.setBody(body);
        return command;
    }

    private static void both(String name, Supplier<RemotingCommand> build) throws Exception {
        one(name, SerializeType.JSON, build);
        one(name, SerializeType.ROCKETMQ, build);
    }

    private static void one(String name, SerializeType codec, Supplier<RemotingCommand> build) throws Exception {
        RemotingCommand command = build.get();
        command.setSerializeTypeCurrentRPC(codec);
        ByteBuf buffer = Unpooled.buffer();
        command.fastEncodeHeader(buffer);
        if (command.getBody() != null) {
            buffer.writeBytes(command.getBody());
        }
        byte[] frame = new byte[buffer.readableBytes()];
        buffer.readBytes(frame);
        RemotingCommand read = RemotingCommand.decode(Arrays.copyOfRange(frame, 4, frame.length));
        ROWS.add(Out.map("name", name, "codec", codec.name(), "frame", Out.hex(frame), "code", read.getCode(),
            "language", read.getLanguage().name(), "version", read.getVersion(), "opaque", read.getOpaque(), "flag", read.getFlag(),
            "remark", read.getRemark(), "ext", read.getExtFields(), "body", Out.hex(read.getBody())));
    }
}
