package dstl.check;

import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.JobStatus;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.runtime.execution.ExecutionState;
import org.apache.flink.runtime.executiongraph.AccessExecutionJobVertex;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.runtime.jobmaster.JobResult;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;

import java.nio.file.Path;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** A mini cluster with one task manager, for one job at a time. */
final class Cluster implements AutoCloseable {
    private static final int SLOTS = 4;
    private static final long PATIENCE_SECONDS = 30;

    private final MiniCluster cluster;

    Cluster(Path work) throws Exception {
        Configuration configuration = new Configuration();
        configuration.setString("rest.bind-port", "0");
        configuration.setString("rest.address", "localhost");
        configuration.setString("io.tmp.dirs", work.resolve("tmp").toString());
        configuration.setString("taskmanager.memory.managed.size", "128m");
        configuration.setString("taskmanager.memory.network.min", "32m");
        configuration.setString("taskmanager.memory.network.max", "32m");
        // Most cases take no checkpoint, but a backend wants a place for them.
        configuration.setString("execution.checkpointing.storage", "filesystem");
        configuration.setString("execution.checkpointing.dir", work.resolve("checkpoints").toUri().toString());
        configuration.setString("state.changelog.storage", "filesystem");
        configuration.setString("state.changelog.dstl.dfs.base-path", work.resolve("changelog").toUri().toString());
        cluster = new MiniCluster(new MiniClusterConfiguration.Builder()
                .setConfiguration(configuration)
                .setNumTaskManagers(1)
                .setNumSlotsPerTaskManager(SLOTS)
                .build());
        cluster.start();
    }

    /** Starts a job; everything that is done with it then has to end within the time. */
    Job submit(JobGraph graph, int timeoutSeconds) throws Exception {
        cluster.submitJob(graph).get(PATIENCE_SECONDS, TimeUnit.SECONDS);
        return new Job(graph.getJobID(), timeoutSeconds);
    }

    @Override
    public void close() throws Exception {
        cluster.closeAsync().get(PATIENCE_SECONDS, TimeUnit.SECONDS);
    }

    /** A running job. Closing it cancels it and waits until its slots are free. */
    final class Job implements AutoCloseable {
        private final JobID id;
        private final int timeoutSeconds;
        private final long deadline;

        private Job(JobID id, int timeoutSeconds) {
            this.id = id;
            this.timeoutSeconds = timeoutSeconds;
            this.deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(timeoutSeconds);
        }

        /** Waits for a milestone; if the job ends before it, fails with the job's own error. */
        void await(String what, CompletableFuture<Void> milestone) throws Exception {
            CompletableFuture<JobResult> ended = cluster.requestJobResult(id);
            get(what, CompletableFuture.anyOf(ended, milestone));
            if (!milestone.isDone()) {
                ended.get().toJobExecutionResult(Cluster.class.getClassLoader());
                throw new IllegalStateException("The job ended by itself during " + what + ".");
            }
        }

        /** Waits until a job with an end has ended; if it fails, fails with the job's own error. */
        void awaitEnd() throws Exception {
            get("the end of the job", cluster.requestJobResult(id))
                    .toJobExecutionResult(Cluster.class.getClassLoader());
        }

        /** Takes a savepoint of the job; returns its path. */
        String savepoint(String folder, SavepointFormatType format) throws Exception {
            awaitRunning();
            String path = get("the savepoint", cluster.triggerSavepoint(id, folder, false, format));
            return new org.apache.flink.core.fs.Path(path).getPath();
        }

        /** Takes a checkpoint of the job; returns its path. */
        String checkpoint() throws Exception {
            awaitRunning();
            String path = get("the checkpoint", cluster.triggerCheckpoint(id));
            return new org.apache.flink.core.fs.Path(path).getPath();
        }

        /** Tasks work before the job manager knows that they run, and only then it takes savepoints. */
        private void awaitRunning() throws Exception {
            while (true) {
                JobStatus status = get("the job's status", cluster.getJobStatus(id));
                if (status.isTerminalState()) {
                    awaitEnd();
                    throw new IllegalStateException("The job ended by itself.");
                }
                if (status != JobStatus.RUNNING) {
                    Thread.sleep(5);
                    continue;
                }
                boolean running = true;
                var graph = get("the job's tasks", cluster.getExecutionGraph(id));
                for (AccessExecutionJobVertex vertex : graph.getVerticesTopologically()) {
                    running &= vertex.getAggregateState() == ExecutionState.RUNNING;
                }
                if (running) {
                    return;
                }
                Thread.sleep(5);
            }
        }

        private <T> T get(String what, Future<T> future) throws Exception {
            long left = deadline - System.nanoTime();
            try {
                if (left > 0) {
                    return future.get(left, TimeUnit.NANOSECONDS);
                }
            } catch (TimeoutException error) {
                // Said below, with what was waited for.
            } catch (ExecutionException error) {
                throw error.getCause() instanceof Exception cause ? cause : error;
            }
            throw new TimeoutException("Waiting for " + what + " took more than " + timeoutSeconds + " s.");
        }

        @Override
        public void close() throws Exception {
            CompletableFuture<JobResult> ended = cluster.requestJobResult(id);
            if (!ended.isDone()) {
                cluster.cancelJob(id);
            }
            ended.get(PATIENCE_SECONDS, TimeUnit.SECONDS);
        }
    }
}
