//! How the thread starts, fails and tries again.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_start_noted_is_written_before_what_is_fed_unless_the_file_is_of_another_journal() {
    for is_of_another in [false, true] {
        let mut world = World::new(8);
        world.go_on(800);
        let mut writer = file::open(&world.path()).expect("opened");
        let mut catch_up = CatchUp::start(&world.source(), &mut writer).expect("readable");
        catch_up.advance(&mut writer, Seq(333)).expect("written");
        let CatchUp { mut fold, mut reader } = catch_up;
        if is_of_another {
            execute(&world.path(), "UPDATE cursor SET at = at + 1");
            writer = file::open(&world.path()).expect("opened");
        }
        while fold.applied < *world.journal.written().borrow() {
            for found in reader.next_batch(100).expect("readable").iter() {
                fold.apply(&found).expect("applied");
                while fold.poll_output().is_some() {}
            }
        }
        assert!(
            fold.notes.as_ref().is_some_and(|missed| missed.from() == Seq(333) && missed.records() > 400)
        );
        let (projection, commands) = Projection::new(&world.path());
        let source = world.source();
        let (projector, feed) = Projector::new(projection.clone(), commands, source, Some(writer), &mut fold);
        let mut looped = Loop { fold, reader, feed };
        // Records appended before the thread starts join the notes of the start.
        world.go_on(50);
        while looped.turn(64) {}
        let thread = projector.start().expect("started");
        looped.settle(&world, &projection).await;
        world.check_same();
        end(looped, thread);
        assert_eq!(projection.failed(), None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_is_far_behind_keeps_the_file_that_it_opened() {
    for is_of_another in [false, true] {
        let mut world = World::new(13);
        world.go_on(800);
        let mut writer = file::open(&world.path()).expect("opened");
        let mut catch_up = CatchUp::start(&world.source(), &mut writer).expect("readable");
        catch_up.advance(&mut writer, Seq(333)).expect("written");
        if is_of_another {
            execute(&world.path(), "UPDATE cursor SET at = at + 1");
            writer = file::open(&world.path()).expect("opened");
        }
        let CatchUp { mut fold, reader } = catch_up;
        // Such a replay takes no notes.
        fold.notes = None;
        let (projection, commands) = Projection::new(&world.path());
        let source = world.source();
        let (projector, feed) = Projector::new(projection.clone(), commands, source, Some(writer), &mut fold);
        // SQLite writes the log into the file, and deletes it, when the last connection is closed.
        let log = format!("{}-wal", world.path().display());
        assert!(Path::new(&log).exists(), "the file was closed");
        let mut looped = Loop { fold, reader, feed };
        let thread = projector.start().expect("started");
        looped.settle(&world, &projection).await;
        world.check_same();
        end(looped, thread);
        assert_eq!(projection.failed(), None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_that_is_not_there_is_said_and_tried_again() {
    let mut world = World::new(9);
    world.go_on(300);
    let path = world.folder.path().join("later").join(FILE_NAME);
    let (projection, feed, thread) = start(&world, &path);
    let mut looped = Loop::new(&world, feed);
    while looped.turn(64) || projection.failed().is_none() {
        tokio::task::yield_now().await;
    }
    assert_eq!(projection.progress().projected(), Seq::ZERO);
    std::fs::create_dir(path.parent().expect("a folder")).expect("made");
    let own = projection.clone();
    let mut orders = tokio::task::JoinSet::new();
    orders.spawn(async move { own.rebuild().await });
    looped.settle(&world, &projection).await;
    drop(orders.join_next().await);
    looped.settle(&world, &projection).await;
    // It is healthy once it is fed again.
    while projection.failed().is_some() {
        looped.turn(64);
        tokio::task::yield_now().await;
    }
    assert_eq!(dump(&path), dump(&world.made_again()));
    end(looped, thread);
}
