// SPDX-License-Identifier: Apache-2.0

import com.alibaba.fastjson.JSONObject;
import java.util.Base64;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;

/** Messages as JSON. */
final class Messages {

    private Messages() {
    }

    static Message read(JSONObject from) {
        Message message = new Message(
            from.getString("topic"), Base64.getDecoder().decode(from.getString("body")));
        message.setFlag(from.getIntValue("flag"));
        if (from.containsKey("tags")) {
            message.setTags(from.getString("tags"));
        }
        if (from.containsKey("keys")) {
            message.setKeys(from.getJSONArray("keys").toJavaList(String.class));
        }
        if (from.containsKey("delay")) {
            message.setDelayTimeLevel(from.getIntValue("delay"));
        }
        JSONObject properties = from.getJSONObject("properties");
        if (properties != null) {
            for (Map.Entry<String, Object> each : properties.entrySet()) {
                MessageAccessor.putProperty(message, each.getKey(), (String) each.getValue());
            }
        }
        return message;
    }

    static JSONObject show(MessageExt message) {
        JSONObject shown = show((Message) message);
        shown.put("queueId", message.getQueueId());
        shown.put("queueOffset", message.getQueueOffset());
        shown.put("msgId", message.getMsgId());
        if (message instanceof MessageClientExt) {
            shown.put("offsetMsgId", ((MessageClientExt) message).getOffsetMsgId());
        }
        shown.put("sysFlag", message.getSysFlag());
        shown.put("bornTimestamp", message.getBornTimestamp());
        shown.put("storeTimestamp", message.getStoreTimestamp());
        shown.put("storeSize", message.getStoreSize());
        shown.put("reconsumeTimes", message.getReconsumeTimes());
        return shown;
    }

    static JSONObject show(Message message) {
        JSONObject shown = new JSONObject(true);
        shown.put("topic", message.getTopic());
        shown.put("body", Base64.getEncoder().encodeToString(message.getBody()));
        shown.put("flag", message.getFlag());
        shown.put("tags", message.getTags());
        shown.put("keys", message.getKeys());
        shown.put("properties", new TreeMap<>(message.getProperties()));
        return shown;
    }
}
