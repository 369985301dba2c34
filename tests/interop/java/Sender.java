// SPDX-License-Identifier: Apache-2.0

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** A producer. */
final class Sender {

    private static final int TIMEOUT = 10_000;

    private final DefaultMQProducer producer;

    Sender(JSONObject command) throws Exception {
        String group = command.getString("group");
        boolean trace = command.getBooleanValue("trace");
        if (command.getBooleanValue("transactional")) {
            TransactionMQProducer transactional =
                new TransactionMQProducer(null, group, null, trace, null);
            transactional.setTransactionListener(new Told());
            producer = transactional;
        } else {
            producer = new DefaultMQProducer(group, trace);
        }
        producer.setNamesrvAddr(command.getString("nameServers"));
        producer.setInstanceName(command.getString("name"));
        producer.setUseTLS(command.getBooleanValue("tls"));
        producer.setSendMsgTimeout(TIMEOUT);
        if (command.containsKey("compressOver")) {
            producer.setCompressMsgBodyOverHowmuch(command.getIntValue("compressOver"));
        }
        if (command.containsKey("maxSize")) {
            producer.setMaxMessageSize(command.getIntValue("maxSize"));
        }
        producer.start();
    }

    void stop() {
        producer.shutdown();
    }

    JSONArray send(JSONObject command) throws Exception {
        List<Message> messages = new ArrayList<>();
        JSONArray given = command.getJSONArray("messages");
        for (int i = 0; i < given.size(); i++) {
            messages.add(Messages.read(given.getJSONObject(i)));
        }
        JSONArray results = new JSONArray();
        switch (command.getString("how")) {
            case "batch":
                results.add(show(producer.send(messages)));
                break;
            case "async":
                async(messages, results);
                break;
            default:
                for (Message each : messages) {
                    results.add(one(each, command));
                }
        }
        return results;
    }

    private JSONObject one(Message message, JSONObject command) throws Exception {
        switch (command.getString("how")) {
            case "sync":
                return show(producer.send(message));
            case "oneway":
                producer.sendOneway(message);
                return null;
            case "queue":
                for (MessageQueue queue : producer.fetchPublishMessageQueues(message.getTopic())) {
                    if (queue.getQueueId() == command.getIntValue("queueId")) {
                        return show(producer.send(message, queue));
                    }
                }
                throw new IllegalArgumentException("no queue " + command.get("queueId"));
            case "selector":
                return show(producer.send(
                    message, new SelectMessageQueueByHash(), command.getString("key")));
            case "transaction":
                return transaction(message);
            default:
                throw new IllegalArgumentException(command.toString());
        }
    }

    private JSONObject transaction(Message message) throws Exception {
        TransactionSendResult result = producer.sendMessageInTransaction(message, null);
        JSONObject shown = show(result);
        shown.put("transactionId", result.getTransactionId());
        shown.put("state", result.getLocalTransactionState().name());
        return shown;
    }

    private void async(List<Message> messages, JSONArray results) throws Exception {
        AtomicReference<Throwable> problem = new AtomicReference<>();
        CountDownLatch left = new CountDownLatch(messages.size());
        for (int i = 0; i < messages.size(); i++) {
            results.add(null);
        }
        for (int i = 0; i < messages.size(); i++) {
            final int place = i;
            producer.send(messages.get(i), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    synchronized (results) {
                        results.set(place, show(result));
                    }
                    left.countDown();
                }

                @Override
                public void onException(Throwable thrown) {
                    problem.set(thrown);
                    left.countDown();
                }
            });
        }
        if (!left.await(TIMEOUT, TimeUnit.MILLISECONDS)) {
            throw new IllegalStateException(left.getCount() + " were not answered");
        }
        if (problem.get() != null) {
            throw new IllegalStateException(problem.get());
        }
    }

    JSONObject request(JSONObject command) throws Exception {
        Message message = Messages.read(command.getJSONObject("message"));
        return Messages.show(producer.request(message, command.getLongValue("timeout")));
    }

    private static JSONObject show(SendResult result) {
        JSONObject shown = new JSONObject(true);
        shown.put("status", result.getSendStatus().name());
        shown.put("msgId", result.getMsgId());
        shown.put("offsetMsgId", result.getOffsetMsgId());
        shown.put("queueId", result.getMessageQueue().getQueueId());
        shown.put("queueOffset", result.getQueueOffset());
        return shown;
    }

    /** Does what a message's properties tell it to. */
    private static final class Told implements TransactionListener {

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return LocalTransactionState.valueOf(message.getProperty("local"));
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return LocalTransactionState.valueOf(message.getProperty("check"));
        }
    }
}
