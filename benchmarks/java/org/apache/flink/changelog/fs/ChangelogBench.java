package org.apache.flink.changelog.fs;

import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.operators.MailboxExecutor;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.metrics.groups.UnregisteredMetricGroups;
import org.apache.flink.runtime.state.KeyGroupRange;
import org.apache.flink.runtime.state.LocalRecoveryConfig;
import org.apache.flink.runtime.state.SnapshotResult;
import org.apache.flink.runtime.state.changelog.ChangelogStateHandleStreamImpl;
import org.apache.flink.runtime.state.changelog.SequenceNumber;
import org.apache.flink.runtime.state.changelog.StateChange;
import org.apache.flink.util.CloseableIterator;
import org.apache.flink.util.function.ThrowingRunnable;

import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Comparator;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/**
 * Times the real FsStateChangelogWriter with the batching scheduler of a task manager, and the real reader, on a
 * local folder. Values are made before the clock starts, as on the other side.
 *
 * <p>Arguments: records, bytes, rounds, folder, compressed. Prints one JSON line a round.
 */
public final class ChangelogBench {
    private static final int VALUES = 65_536;

    /** Mails are run by the benchmark's own thread, as a task does. */
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

        void waitForOne() throws InterruptedException {
            ThrowingRunnable<? extends Exception> mail = mails.poll(1, TimeUnit.MILLISECONDS);
            if (mail != null) {
                run(mail);
            }
        }

        private static void run(ThrowingRunnable<? extends Exception> mail) {
            try {
                mail.run();
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        }
    }

    private static FsStateChangelogStorage storage(Path dir, String threshold, boolean compressed) throws Exception {
        Configuration conf = new Configuration();
        conf.setString("state.changelog.dstl.dfs.base-path", dir.toUri().toString());
        conf.setString("state.changelog.dstl.dfs.preemptive-persist-threshold", threshold);
        conf.setString("state.changelog.dstl.dfs.compression.enabled", Boolean.toString(compressed));
        // A slow disk must not turn into a second attempt.
        conf.setString("state.changelog.dstl.dfs.upload.timeout", "60 s");
        return new FsStateChangelogStorage(
                new JobID(),
                conf,
                UnregisteredMetricGroups.createUnregisteredTaskManagerJobMetricGroup(),
                LocalRecoveryConfig.BACKUP_AND_RECOVERY_DISABLED);
    }

    private static double appendOnly(int records, byte[][] values, Path dir) throws Exception {
        FsStateChangelogStorage storage = storage(dir, "1000 gb", false);
        FsStateChangelogWriter writer = storage.createWriter("bench", KeyGroupRange.of(0, 127), new Mailbox());
        long start = System.nanoTime();
        for (int i = 0; i < records; i++) {
            writer.append(i & 127, values[i & (VALUES - 1)]);
        }
        double seconds = (System.nanoTime() - start) / 1e9;
        writer.close();
        storage.close();
        return seconds;
    }

    private static void round(int records, byte[][] values, Path dir, boolean compressed, boolean print) throws Exception {
        System.gc();
        double appendOnly = appendOnly(records, values, dir.resolve("unused"));
        System.gc();
        Mailbox mailbox = new Mailbox();
        FsStateChangelogStorage storage = storage(dir, "5 mb", compressed);
        FsStateChangelogWriter writer = storage.createWriter("bench", KeyGroupRange.of(0, 127), mailbox);
        SequenceNumber from = writer.initialSequenceNumber();
        long start = System.nanoTime();
        for (int i = 0; i < records; i++) {
            writer.append(i & 127, values[i & (VALUES - 1)]);
            if ((i & 1023) == 0) {
                while (mailbox.tryYield()) {}
                // A task that is not available runs mails only.
                while (!storage.getAvailabilityProvider().isApproximatelyAvailable()) {
                    mailbox.waitForOne();
                }
            }
        }
        CompletableFuture<SnapshotResult<ChangelogStateHandleStreamImpl>> future = writer.persist(from, 1L);
        while (!future.isDone()) {
            mailbox.waitForOne();
        }
        double durable = (System.nanoTime() - start) / 1e9;
        ChangelogStateHandleStreamImpl handle = future.get().getJobManagerOwnedSnapshot();
        double read = Double.MAX_VALUE;
        for (int k = 0; k < 2; k++) {
            long count = 0;
            long bytes = 0;
            start = System.nanoTime();
            try (CloseableIterator<StateChange> changes =
                    new FsStateChangelogStorageForRecovery(ChangelogStreamHandleReader.DIRECT_READER)
                            .createReader()
                            .getChanges(handle)) {
                while (changes.hasNext()) {
                    count++;
                    bytes += changes.next().getChange().length;
                }
            }
            read = Math.min(read, (System.nanoTime() - start) / 1e9);
            if (count != records || bytes != (long) records * values[0].length) {
                throw new IllegalStateException("read " + count + " changes of " + bytes + " bytes");
            }
        }
        writer.close();
        storage.close();
        if (print) {
            System.out.printf(
                    "{\"append\": %.6f, \"durable\": %.6f, \"read\": %.6f, \"peak_kib\": %d}%n",
                    appendOnly, durable, read, peakKib());
        }
        delete(dir);
    }

    private static long peakKib() throws Exception {
        for (String line : Files.readAllLines(Paths.get("/proc/self/status"))) {
            if (line.startsWith("VmHWM")) {
                return Long.parseLong(line.replaceAll("\\D", ""));
            }
        }
        return -1;
    }

    private static void delete(Path dir) throws Exception {
        if (Files.exists(dir)) {
            try (Stream<Path> all = Files.walk(dir)) {
                all.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
            }
        }
    }

    public static void main(String[] args) throws Exception {
        int records = Integer.parseInt(args[0]);
        byte[][] values = new byte[VALUES][Integer.parseInt(args[1])];
        Random random = new Random(7);
        for (byte[] value : values) {
            random.nextBytes(value);
            // Half of it compresses.
            java.util.Arrays.fill(value, 0, value.length / 2, (byte) 7);
        }
        Path dir = Paths.get(args[3]);
        boolean compressed = Boolean.parseBoolean(args[4]);
        for (int i = 0; i < 2; i++) {
            round(Math.min(records, 500_000), values, dir, compressed, false); // the compilers warm up
        }
        for (int i = 0; i < Integer.parseInt(args[2]); i++) {
            round(records, values, dir, compressed, true);
        }
        System.exit(0);
    }
}
