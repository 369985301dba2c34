# SPDX-License-Identifier: Apache-2.0
"""
The keys of RocketMQ 4.9.7's settings, to distinguish a setting without effect from a
misspelling.

Java accepts a key if a configuration class has a setter of that name
(C{MixAll.properties2Object}).  Here is one set for each such class, and one for each
other source of keys.
"""

from __future__ import annotations

__all__ = [
    "BROKER_CONFIG",
    "BROKER_KEYS",
    "BROKER_STARTUP",
    "FORMER",
    "MESSAGE_STORE_CONFIG",
    "NAMESRV_CONFIG",
    "NAMESRV_KEYS",
    "NETTY_CLIENT_CONFIG",
    "NETTY_SERVER_CONFIG",
    "SYSTEM_PROPERTIES",
    "TLS_SYSTEM_CONFIG",
    "WRITTEN",
]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


BROKER_CONFIG = _names(
    """
    aclEnable adminBrokerThreadPoolNums autoCreateSubscriptionGroup autoCreateTopicEnable
    autoDeleteUnusedStats brokerClusterName brokerFastFailureEnable brokerId brokerIP1 brokerIP2
    brokerName brokerPermission brokerTopicEnable clientManagerThreadPoolQueueCapacity
    clientManageThreadPoolNums clusterTopicEnable commercialBaseCount commercialBigCount
    commercialEnable commercialTimerCount commercialTransCount compressedRegister
    consumerFallbehindThreshold consumerManagerThreadPoolQueueCapacity
    consumerManageThreadPoolNums defaultTopicQueueNums disableConsumeIfConsumerReadSlowly
    enableCalcFilterBitMap enableDetailStat enablePropertyFilter endTransactionPoolQueueCapacity
    endTransactionThreadPoolNums expectConsumerNumUseFilter fetchNamesrvAddrByAddressServer
    filterDataCleanTimeSpan filterServerNums filterSupportRetry flushConsumerOffsetHistoryInterval
    flushConsumerOffsetInterval forceRegister heartbeatThreadPoolNums
    heartbeatThreadPoolQueueCapacity highSpeedMode isolateLogEnable longPollingEnable maxDelayTime
    maxErrorRateOfBloomFilter messageStorePlugIn msgTraceTopicName namesrvAddr
    notifyConsumerIdsChangedEnable processReplyMessageThreadPoolNums pullMessageThreadPoolNums
    pullThreadPoolQueueCapacity putMessageFutureThreadPoolNums putThreadPoolQueueCapacity
    queryMessageThreadPoolNums queryThreadPoolQueueCapacity regionId registerBrokerTimeoutMills
    registerNameServerPeriod rejectTransactionMessage replyThreadPoolQueueCapacity rocketmqHome
    sendMessageThreadPoolNums sendThreadPoolQueueCapacity shortPollingTimeMills slaveReadEnable
    startAcceptSendRequestTimeStamp storeReplyMessageEnable traceOn traceTopicEnable
    transactionCheckInterval transactionCheckMax transactionTimeOut transferMsgByHeap
    waitTimeMillsInHeartbeatQueue waitTimeMillsInPullQueue waitTimeMillsInSendQueue
    waitTimeMillsInTransactionQueue
    """
)

MESSAGE_STORE_CONFIG = _names(
    """
    accessMessageInMemoryMaxRatio bitMapLengthConsumeQueueExt brokerRole checkCRCOnRecover
    cleanFileForciblyEnable cleanResourceInterval commitCommitLogLeastPages
    commitCommitLogThoroughInterval commitIntervalCommitLog debugLockEnable defaultQueryMaxNum
    deleteCommitLogFilesInterval deleteConsumeQueueFilesInterval deleteWhen
    destroyMapedFileIntervalForcibly diskFallRecorded diskMaxUsedSpaceRatio dLegerGroup
    dLegerPeers dLegerSelfId duplicationEnable enableBatchPush enableConsumeQueueExt
    enableDLegerCommitLog enableLmq enableMultiDispatch enableScheduleAsyncDeliver
    enableScheduleMessageStats fastFailIfNoBufferInStorePool fileReservedTime
    flushCommitLogLeastPages flushCommitLogThoroughInterval flushCommitLogTimed
    flushConsumeQueueLeastPages flushConsumeQueueThoroughInterval flushDelayOffsetInterval
    flushDiskType flushIntervalCommitLog flushIntervalConsumeQueue
    flushLeastPagesWhenWarmMapedFile haHousekeepingInterval haListenPort haMasterAddress
    haSendHeartbeatInterval haSlaveFallbehindMax haTransferBatchSize mappedFileSizeCommitLog
    mappedFileSizeConsumeQueue mappedFileSizeConsumeQueueExt maxHashSlotNum maxIndexNum
    maxLmqConsumeQueueNum maxMessageSize maxMsgsNumBatch maxTransferBytesOnMessageInDisk
    maxTransferBytesOnMessageInMemory maxTransferCountOnMessageInDisk
    maxTransferCountOnMessageInMemory messageDelayLevel messageIndexEnable messageIndexSafe
    offsetCheckInSlave osPageCacheBusyTimeOutMills preferredLeaderId putMsgIndexHightWater
    readOnlyCommitLogStorePaths redeleteHangedFileInterval scheduleAsyncDeliverMaxPendingLimit
    scheduleAsyncDeliverMaxResendNum2Blocked slaveTimeout storePathCommitLog
    storePathDLedgerCommitLog storePathRootDir syncFlushTimeout transientStorePoolEnable
    transientStorePoolSize useReentrantLockWhenPutMessage warmMapedFileEnable
    """
)

NETTY_SERVER_CONFIG = _names(
    """
    listenPort serverAsyncSemaphoreValue serverCallbackExecutorThreads
    serverChannelMaxIdleTimeSeconds serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable
    serverSelectorThreads serverSocketBacklog serverSocketRcvBufSize serverSocketSndBufSize
    serverWorkerThreads useEpollNativeSelector writeBufferHighWaterMark writeBufferLowWaterMark
    """
)

NETTY_CLIENT_CONFIG = _names(
    """
    channelNotActiveInterval clientAsyncSemaphoreValue clientCallbackExecutorThreads
    clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout clientOnewaySemaphoreValue
    clientPooledByteBufAllocatorEnable clientSocketRcvBufSize clientSocketSndBufSize
    clientWorkerThreads connectTimeoutMillis useTLS writeBufferHighWaterMark
    writeBufferLowWaterMark
    """
)

NAMESRV_CONFIG = _names(
    """
    clusterTest configStorePath kvConfigPath orderMessageEnable productEnvName rocketmqHome
    """
)

# BrokerStartup reads these from the file itself.
BROKER_STARTUP = frozenset({"rmqAddressServerDomain", "rmqAddressServerSubGroup"})

# In Java these are system properties, and most of them may also be in a separate file,
# tls.config.file.  Here they are in the same file as the others.
TLS_SYSTEM_CONFIG = _names(
    """
    tls.client.authServer tls.client.certPath tls.client.keyPassword tls.client.keyPath
    tls.client.trustCertPath tls.config.file tls.enable tls.server.authClient tls.server.certPath
    tls.server.keyPassword tls.server.keyPath tls.server.mode tls.server.need.client.auth
    tls.server.trustCertPath tls.test.mode.enable
    """
)

# Names that the servers and their libraries pass to System.getProperty.
SYSTEM_PROPERTIES = _names(
    """
    com.rocketmq.remoting.client.channel.maxIdleTimeSeconds
    com.rocketmq.remoting.client.closeSocketIfTimeout
    com.rocketmq.remoting.client.connect.timeout
    com.rocketmq.remoting.client.worker.size
    com.rocketmq.remoting.clientAsyncSemaphoreValue
    com.rocketmq.remoting.clientOnewaySemaphoreValue
    com.rocketmq.remoting.frameMaxLength
    com.rocketmq.remoting.nettyPooledByteBufAllocatorEnable
    com.rocketmq.remoting.socket.backlog
    com.rocketmq.remoting.socket.rcvbuf.size
    com.rocketmq.remoting.socket.sndbuf.size
    com.rocketmq.remoting.write.buffer.high.water.mark
    com.rocketmq.remoting.write.buffer.low.water.mark
    rocketmq.broker.diskSpaceCleanForciblyRatio rocketmq.broker.diskSpaceWarningLevelRatio
    rocketmq.broker.multiPathSplitter rocketmq.broker.rebalance.lockMaxLiveTime
    rocketmq.home.dir rocketmq.namesrv.addr rocketmq.namesrv.domain
    rocketmq.namesrv.domain.subgroup rocketmq.remoting.version rocketmq.serialize.type
    """
)

# Java writes changed settings back under the names of fields, and the name of this field
# differs from that of its setter.
WRITTEN = frozenset({"isEnableBatchPush"})

# Keys that 4.9.7 silently ignores, but that many files still have: older versions or
# their documentation had them.
FORMER = _names(
    """
    abortFile checkTransactionMessageEnable mapedFileSizeCommitLog mapedFileSizeConsumeQueue
    storeCheckpoint storePathAbort storePathCheckpoint storePathConsumeQueue storePathIndex
    """
)

BROKER_KEYS = (
    BROKER_CONFIG
    | MESSAGE_STORE_CONFIG
    | NETTY_SERVER_CONFIG
    | NETTY_CLIENT_CONFIG
    | BROKER_STARTUP
    | TLS_SYSTEM_CONFIG
    | SYSTEM_PROPERTIES
    | WRITTEN
    | FORMER
)

NAMESRV_KEYS = NAMESRV_CONFIG | NETTY_SERVER_CONFIG | TLS_SYSTEM_CONFIG | SYSTEM_PROPERTIES
