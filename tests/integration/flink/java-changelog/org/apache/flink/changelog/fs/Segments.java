package org.apache.flink.changelog.fs;

import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.operators.MailboxExecutor;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.fs.Path;
import org.apache.flink.runtime.metrics.groups.UnregisteredMetricGroups;
import org.apache.flink.runtime.state.KeyGroupRange;
import org.apache.flink.runtime.state.LocalRecoveryConfig;
import org.apache.flink.runtime.state.SnapshotResult;
import org.apache.flink.runtime.state.StreamStateHandle;
import org.apache.flink.runtime.state.changelog.ChangelogStateHandleStreamImpl;
import org.apache.flink.runtime.state.changelog.SequenceNumber;
import org.apache.flink.runtime.state.changelog.StateChange;
import org.apache.flink.runtime.state.filesystem.FileStateHandle;
import org.apache.flink.util.CloseableIterator;
import org.apache.flink.util.function.ThrowingRunnable;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;

/**
 * Drives the real changelog writers and reader from lines of standard input; the package gives access
 * to classes that are not public.
 *
 * <pre>
 * write DIR COMPRESSED THRESHOLD WRITERS     starts that many writers of one storage; then:
 *   append W KEY_GROUP HEX | meta W HEX | next W
 *   persist                                  all writers from 0; prints "handle W FILE OFFSET SIZE" lines
 * read                                       then lines "FILE OFFSET SIZE", an empty one to read them as one handle;
 *                                            prints "change KEY_GROUP HEX" lines
 * </pre>
 */
public final class Segments {
    private static final KeyGroupRange RANGE = KeyGroupRange.of(0, 32767);

    private static final class Mailbox implements MailboxExecutor {
        private final LinkedBlockingQueue<ThrowingRunnable<? extends Exception>> mails = new LinkedBlockingQueue<>();

        @Override
        public void execute(MailOptions options, ThrowingRunnable<? extends Exception> mail, String text, Object... args) {
            mails.add(mail);
        }

        @Override
        public void yield() throws InterruptedException {
            run(mails.take());
        }

        @Override
        public boolean tryYield() {
            ThrowingRunnable<? extends Exception> mail = mails.poll();
            if (mail != null) {
                run(mail);
            }
            return mail != null;
        }

        @Override
        public boolean shouldInterrupt() {
            return false;
        }

        private static void run(ThrowingRunnable<? extends Exception> mail) {
            try {
                mail.run();
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "US-ASCII"));
        String line;
        while ((line = in.readLine()) != null) {
            String[] words = line.split(" ");
            if (words[0].equals("write")) {
                write(in, words);
            } else {
                read(in);
            }
            System.out.println("done");
        }
        System.exit(0);
    }

    private static void write(BufferedReader in, String[] words) throws Exception {
        Configuration conf = new Configuration();
        conf.setString("state.changelog.dstl.dfs.base-path", words[1]);
        conf.setString("state.changelog.dstl.dfs.compression.enabled", words[2]);
        conf.setString("state.changelog.dstl.dfs.preemptive-persist-threshold", words[3] + " b");
        // Long enough for all writers to share a file.
        conf.setString("state.changelog.dstl.dfs.batch.persist-delay", "300 ms");
        conf.setString("state.changelog.dstl.dfs.upload.timeout", "60 s");
        FsStateChangelogStorage storage =
                new FsStateChangelogStorage(
                        new JobID(),
                        conf,
                        UnregisteredMetricGroups.createUnregisteredTaskManagerJobMetricGroup(),
                        LocalRecoveryConfig.BACKUP_AND_RECOVERY_DISABLED);
        Mailbox mailbox = new Mailbox();
        List<FsStateChangelogWriter> writers = new ArrayList<>();
        for (int i = 0; i < Integer.parseInt(words[4]); i++) {
            writers.add(storage.createWriter("operator", RANGE, mailbox));
        }
        String line;
        while (!(line = in.readLine()).equals("persist")) {
            String[] step = line.split(" ", -1);
            FsStateChangelogWriter writer = writers.get(Integer.parseInt(step[1]));
            switch (step[0]) {
                case "append":
                    writer.append(Integer.parseInt(step[2]), bytes(step[3]));
                    break;
                case "meta":
                    writer.appendMeta(bytes(step[2]));
                    break;
                default:
                    writer.nextSequenceNumber();
            }
        }
        List<CompletableFuture<SnapshotResult<ChangelogStateHandleStreamImpl>>> futures = new ArrayList<>();
        for (FsStateChangelogWriter writer : writers) {
            futures.add(writer.persist(SequenceNumber.of(0), 1L));
        }
        for (int i = 0; i < writers.size(); i++) {
            while (!futures.get(i).isDone()) {
                mailbox.yield();
            }
            for (Tuple2<StreamStateHandle, Long> each :
                    futures.get(i).get().getJobManagerOwnedSnapshot().getHandlesAndOffsets()) {
                Path path = ((FileStateHandle) each.f0).getFilePath();
                System.out.println("handle " + i + " " + path + " " + each.f1 + " " + each.f0.getStateSize());
            }
        }
        storage.close();
    }

    private static void read(BufferedReader in) throws Exception {
        List<Tuple2<StreamStateHandle, Long>> places = new ArrayList<>();
        String line;
        while (!(line = in.readLine()).isEmpty()) {
            String[] place = line.split(" ");
            places.add(Tuple2.of(new FileStateHandle(new Path(place[0]), Long.parseLong(place[2])), Long.parseLong(place[1])));
        }
        ChangelogStateHandleStreamImpl handle = new ChangelogStateHandleStreamImpl(places, RANGE, 0L, 0L, "filesystem");
        StringBuilder out = new StringBuilder();
        try (CloseableIterator<StateChange> changes =
                new FsStateChangelogStorageForRecovery(ChangelogStreamHandleReader.DIRECT_READER)
                        .createReader()
                        .getChanges(handle)) {
            while (changes.hasNext()) {
                StateChange change = changes.next();
                out.append("change ").append(change.getKeyGroup()).append(' ').append(hex(change.getChange())).append('\n');
            }
        }
        System.out.print(out);
    }

    private static byte[] bytes(String hex) {
        byte[] bytes = new byte[hex.length() / 2];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) Integer.parseInt(hex.substring(2 * i, 2 * i + 2), 16);
        }
        return bytes;
    }

    private static String hex(byte[] bytes) {
        StringBuilder hex = new StringBuilder();
        for (byte each : bytes) {
            hex.append(String.format("%02x", each));
        }
        return hex.toString();
    }
}
